-- Wakes workers that sleep: each is registered with the time until which it sleeps, by the same atomic call that
-- found nothing for it, so that no wake-up is lost. The youngest sleeper is the one most surely alive.

local function wake(who, what, count)
    local key = P .. ':' .. who
    while count > 0 do
        local found = call('ZPOPMAX', key)
        if not found[1] then
            return
        end
        if tonumber(found[2]) >= NOW then
            local token = P .. ':wake:' .. found[1]
            call('LPUSH', token, what)
            call('PEXPIRE', token, 60000)
            count = count - 1
        end
    end
end
