-- What time alone changes: delayed jobs fall due, leases end, rates and blocks open again; and when it will next.

local function release(one)
    one.active = one.active - 1
end

local function fall_due()
    local due = call('ZRANGEBYSCORE', P .. ':delayed', '-inf', NOW, 'LIMIT', 0, AT_ONCE)
    if #due == 0 then
        return
    end
    call('ZREMRANGEBYRANK', P .. ':delayed', 0, #due - 1)
    for _, member in ipairs(due) do
        local job = known(member:sub(7))
        local one = job and company(job.number)
        if one and job.where == DELAYED and not enter(one, job) then
            forget(job.id)
        end
    end
end

local function in_order_of_line(a, b)
    if a.priority ~= b.priority then
        return a.priority < b.priority
    elseif a.due ~= b.due then
        return a.due < b.due
    elseif #a.ref ~= #b.ref then
        return #a.ref < #b.ref
    elseif a.ref ~= b.ref then
        return a.ref < b.ref
    end
    return a.id < b.id
end

-- Leases are over: whoever had them is late, and a claim will tell what became of these e-mails.
local function take_back()
    local ended = call('ZRANGEBYSCORE', P .. ':active', '-inf', '(' .. string.format('%.17g', NOW), 'LIMIT', 0, AT_ONCE)
    if #ended == 0 then
        return
    end
    call_many('ZREM', P .. ':active', ended)
    local jobs = {}
    for _, id in ipairs(ended) do
        jobs[#jobs + 1] = known(id)
    end
    table.sort(jobs, in_order_of_line)
    for _, job in ipairs(jobs) do
        local one = company(job.number)
        if one then
            release(one)
            if not enter(one, job, true) then
                forget(job.id)
            end
        end
    end
end

local function open_again(what, field)
    local over = call('ZRANGEBYSCORE', P .. what, '-inf', NOW)
    for _, member in ipairs(over) do
        call('ZREM', P .. what, member)
        local one = company((sunpack('>I4', member)))
        if one then
            one[field] = false
            compete(one)
            see_hunger(one)
        end
    end
end

local function advance()
    fall_due()
    take_back()
    open_again(':resting', 'resting')
    open_again(':blocked', 'blocked')
end

local function rest(one, until_)
    one.resting = true
    call('ZADD', P .. ':resting', until_, spack('>I4', one.number))
    compete(one)
end

local function suspects_due()
    local found = {}
    for _, member in ipairs(call('ZRANGE', P .. ':suspects', 0, 99)) do
        local job = known(member:sub(7))
        local one = job and company(job.number)
        if one then
            found[#found + 1] = { job = job, company = one, member = member }
        end
    end
    return found
end

-- When time alone may next make something takeable; -1: never.
local function next_moment(limit)
    local moment
    local function at(when)
        if when and (not moment or when < moment) then
            moment = when
        end
    end
    for _, what in ipairs({ ':delayed', ':resting', ':blocked', ':active' }) do
        local first = call('ZRANGE', P .. what, 0, 0, 'WITHSCORES')[2]
        at(first and tonumber(first) + (what == ':active' and 1 or 0))
    end
    if limit and room_in(limit) == 0 then
        at(room_again_at(limit))
    end
    for _, one in ipairs(suspects_due()) do
        if one.company.rated and not one.company.blocked then
            at(room_again_at(window_of(one.company)))
        end
    end
    return string.format('%.0f', moment or -1)
end
