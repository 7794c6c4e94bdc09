-- Forget jobs, wherever they stand. An unknown id is no error.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  ids
-- Returns   epoch
--
-- Atomic, because record, place and counts must go together: what is forgotten but stands in a line would be counted
-- for ever.
--
--- include: state though_full wake known companies turns line lines

local function withdraw(one, job)
    if job.where == DELAYED then
        call('ZREM', P .. ':delayed', spack('>I6', job.came) .. job.id)
    elseif job.where == SUSPECT then
        S.waiting, S.suspects = S.waiting - call('ZREM', P .. ':suspects', spack('>I6', job.came) .. job.id), nil
    elseif line_remove(one, job) then
        one.waiting = one.waiting - 1
        S.waiting = S.waiting - 1
        compete(one)
        see_hunger(one)
    end
end

for from = FIRST, #ARGV, 1000 do
    local last = math.min(from + 999, #ARGV)
    local leases = call('ZMSCORE', P .. ':active', unpack(ARGV, from, last))
    call('ZREM', P .. ':active', unpack(ARGV, from, last))
    for place = from, last do
        local id = ARGV[place]
        local key = bucket(id)
        local record = call('HGET', key, id)
        if record then
            call('HDEL', key, id)
            S.known = S.known - 1
            if leases[place - from + 1] then
                local one = company((sunpack('>I4', record)))
                if one then
                    one.active = one.active - 1
                end
            else
                local job = read_record(id, record)
                local one = company(job.number)
                if one then
                    withdraw(one, job)
                end
            end
        end
    end
end
if suspects() > 0 then
    wake('sleepers', 't', 1) -- A suspect waits until nothing else is in flight.
end
return finish(0)
