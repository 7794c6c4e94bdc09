-- One company's waiting jobs, in order: priority, then due time, then as they came (by age: due time alone).
-- A run (a LIST of ids) for each priority, where most jobs come in order; beside them, of all priorities, a sorted
-- set of those that came late or came back. Of two equal ones the one in the run came first, unless the other one
-- stood here before and came back.

local PRIORITY = 17592186044416 -- 2^44: due times are below it, and ten priorities of it fit a score

local function run_key(one, priority)
    return P .. ':line:' .. string.format('%d:%d', one.number, priority)
end

local function late_key(one)
    return P .. ':late:' .. string.format('%d', one.number)
end

local function run_of(job)
    return FAIR and job.priority or 0
end

local function rank_of(job)
    return run_of(job) * PRIORITY + job.due
end

local function late_member(job)
    return (job.where == RETURNED and '0' or '1') .. spack('>I6', job.came) .. job.id
end

local function has_run(one, priority)
    return bit.band(one.mask, bit.lshift(1, priority)) ~= 0
end

local function set_run(one, priority, there)
    if has_run(one, priority) ~= there then
        one.mask = bit.bxor(one.mask, bit.lshift(1, priority))
    end
end

-- The job at one end of a run, or nil: then there is no such run any more.
local function run_end(one, priority, place)
    if not has_run(one, priority) then
        return nil
    end
    local id = call('LINDEX', run_key(one, priority), place)
    if not id then
        set_run(one, priority, false)
        return nil
    end
    return known(id) or { id = id, number = one.number, where = RUN, priority = priority, due = 0, ref = '' }
end

local function last_due(one, priority)
    if one.last[priority] == nil then
        local last = run_end(one, priority, -1)
        one.last[priority] = last and last.due or false
    end
    return one.last[priority]
end

local function put_late(one, job)
    job.came = next_came()
    call('ZADD', late_key(one), rank_of(job), late_member(job))
    one.late = true
end

-- Into the line; the record is written by the caller where `where` is not what it was met with.
local function line_put(one, job, back)
    if back then
        job.where = RETURNED
        return put_late(one, job)
    end
    local priority = run_of(job)
    local last = last_due(one, priority)
    local in_order = not last or job.due >= last
    if in_order and one.late then
        local top = call('ZREVRANGEBYSCORE', late_key(one), '(' .. string.format('%.17g', (priority + 1) * PRIORITY),
            priority * PRIORITY, 'WITHSCORES', 'LIMIT', 0, 1)
        in_order = not top[1] or rank_of(job) > tonumber(top[2])
    end
    if in_order then
        job.where = RUN
        call('RPUSH', run_key(one, priority), job.id)
        set_run(one, priority, true)
        one.last[priority] = job.due
    else
        job.where = LATE
        put_late(one, job)
    end
end

local function first_late(one, backwards)
    if not one.late then
        return nil
    end
    local found = call(backwards and 'ZREVRANGE' or 'ZRANGE', late_key(one), 0, 0, 'WITHSCORES')
    if not found[1] then
        one.late = false
        return nil
    end
    return { member = found[1], score = tonumber(found[2]), id = found[1]:sub(8), back = found[1]:sub(1, 1) == '0' }
end

local function first_run(one)
    for priority = 0, 10 do
        if has_run(one, priority) then
            local job = run_end(one, priority, 0)
            if job then
                return job, priority
            end
        end
    end
    return nil
end

local function last_run(one)
    for priority = 10, 0, -1 do
        if has_run(one, priority) then
            local job = run_end(one, priority, -1)
            if job then
                return job, priority
            end
        end
    end
    return nil
end

local function run_is_next(job, late)
    local rank = rank_of(job)
    return rank < late.score or (rank == late.score and not late.back)
end

-- The first job of the line, or nil.
local function line_head(one)
    local job = first_run(one)
    local late = first_late(one)
    if late and not (job and run_is_next(job, late)) then
        return known(late.id)
    end
    return job
end

-- The last job of the line, and how to take it away.
local function line_last(one)
    local job, priority = last_run(one)
    local late = first_late(one, true)
    if late and not (job and (rank_of(job) > late.score or (rank_of(job) == late.score and late.back))) then
        return known(late.id), late
    end
    return job, nil, priority
end

local function drop_last(one)
    local job, late, priority = line_last(one)
    if late then
        call('ZREM', late_key(one), late.member)
    elseif job then
        call('RPOP', run_key(one, priority))
        one.last[priority] = nil
    end
    return job
end

-- Moves up to `count` ids, the first ones, to the end of `into`; how many there were.
local function line_take(one, count, into)
    local taken = 0
    while taken < count do
        local late = first_late(one)
        if late then
            local job, priority = first_run(one)
            if job and run_is_next(job, late) then
                call('LPOP', run_key(one, priority))
                into[#into + 1] = job.id
            else
                call('ZREM', late_key(one), late.member)
                into[#into + 1] = late.id
            end
            taken = taken + 1
        else
            local priority = 0
            while priority <= 10 and not has_run(one, priority) do
                priority = priority + 1
            end
            if priority > 10 then
                break
            end
            local ids = call('LPOP', run_key(one, priority), count - taken) or {}
            for place = 1, #ids do
                into[#into + 1] = ids[place]
            end
            if #ids < count - taken then
                set_run(one, priority, false)
                one.last[priority] = false
            end
            taken = taken + #ids
        end
    end
    one.waiting = one.waiting - taken
    S.waiting = S.waiting - taken
    if taken < count then -- What was counted is not there: the count is put right, or its turn would never end.
        S.waiting = S.waiting - one.waiting
        one.waiting = 0
    end
    return taken
end

local function line_remove(one, job)
    local gone
    if job.where == RUN then
        gone = call('LREM', run_key(one, run_of(job)), 1, job.id)
        one.last[run_of(job)] = nil
    else
        gone = call('ZREM', late_key(one), late_member(job))
    end
    return gone > 0
end
