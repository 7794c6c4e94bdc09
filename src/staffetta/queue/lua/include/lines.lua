-- What waits, company by company, within bounds: who competes, who is hungry, where each line ends.

local function suspects()
    return call('ZCARD', P .. ':suspects')
end

local function lines_waiting()
    if not S.suspects then
        S.suspects = suspects()
    end
    return S.waiting - S.suspects
end

local function place_before(priority, due, other_priority, other_due)
    return priority < other_priority or (priority == other_priority and due < other_due)
end

-- Priority and due time of a job as the client shows it.
local function place_of(text)
    local _, priority, due = sunpack('>BBI6', text)
    return priority % 128, due
end

local function behind(job, text)
    local priority, due = place_of(text)
    return place_before(priority, due, job.priority, job.due)
end

local function show(job)
    return spack('>BBI6', #job.ref * 16, job.priority + (job.suspect and 128 or 0), job.due) .. job.ref .. job.id
end

local function allowance(one)
    if lines_waiting() >= WAITING_MAX then
        one.quota = FLOOR
        return FLOOR
    end
    local total = one.counted and S.weight_sum or S.weight_sum + one.weight
    local share = WAITING_MAX
    if total > 0 then
        share = floor(WAITING_MAX * one.weight / total)
    end
    one.quota = math.max(FLOOR, math.min(PER_COMPANY_MAX, share))
    return one.quota
end

local function low_of(most)
    return math.max(BATCH_MAX, floor(most / 2))
end

-- Its place among those that somebody should feed.
local function see_hunger(one)
    if one.more and not one.blocked and one.waiting <= one.low then
        if call('ZADD', P .. ':hungry', one.waiting, one.number) == 1 then
            wake('feeders', 'f', 1)
        end
        one.hungry = true
    elseif one.hungry ~= false then
        call('ZREM', P .. ':hungry', one.number)
        one.hungry = false
    end
end

-- In plain order a company stands where its oldest job stands.
local function age(one)
    local head = line_head(one)
    local tag = 0
    if head then
        tag = head.due
    elseif ends(one)['end'] then
        local _, due = place_of(one['end'])
        tag = due
    end
    if tag ~= one.tag then
        one.tag = tag
        moved(one)
    end
end

-- Bring the order in line with what this company has and may do.
local function compete(one)
    local wants = one.waiting > 0 or one.more or false
    if wants ~= (one.counted or false) then
        one.counted = wants
        S.weight_sum = S.weight_sum + (wants and one.weight or -one.weight)
    end
    if one.blocked or one.resting then
        leave(one)
    elseif wants then
        if not FAIR then
            age(one)
        end
        join(one)
    elseif holds(one) then
        end_turn()
    else
        leave(one)
    end
end

local function end_at(one, last)
    one.more, one.missed = true, true
    set_ends(one, last, last)
    one.low = low_of(allowance(one))
    see_hunger(one)
end

local function all_told(one)
    set_ends(one, nil, nil)
    one.more = false
end

local function in_line(one, job, back)
    line_put(one, job, back)
    one.waiting = one.waiting + 1
    S.waiting = S.waiting + 1
    if job.where ~= RUN or job.written ~= RUN then
        learn(job)
    end
end

-- Into its company's line, unless it stands behind what is known of it, or there is no room. The record is written.
local function put(one, job, back)
    if one.more then
        local last = ends(one)['end']
        if not last or behind(job, last) then
            one.missed = true
            return false
        end
    end
    if one.waiting >= FLOOR and (one.waiting >= one.quota or lines_waiting() >= WAITING_MAX)
        and one.waiting >= allowance(one) then
        local last = line_last(one)
        if last then
            local before = place_before(job.priority, job.due, last.priority, last.due)
            local equal = job.priority == last.priority and job.due == last.due
            if not before and not (back and equal) then
                end_at(one, show(last))
                return false
            end
            local dropped = drop_last(one)
            forget(dropped.id)
            one.waiting = one.waiting - 1
            S.waiting = S.waiting - 1
            -- In plain order the last by age need not be the last of the store's line: then from the beginning.
            local rest = FAIR and one.waiting > 0 and line_last(one)
            end_at(one, rest and show(rest) or nil)
        end
    end
    in_line(one, job, back)
    if not one.counted or not FAIR then
        compete(one)
    end
    return true
end

-- A known job finds its place by its due time. False: no room.
local function enter(one, job, back)
    if job.due > NOW then
        if call('ZCARD', P .. ':delayed') >= DELAYED_MAX then
            return false
        end
        job.where, job.came = DELAYED, next_came()
        call('ZADD', P .. ':delayed', job.due, spack('>I6', job.came) .. job.id)
        learn(job)
        local first = call('ZRANGE', P .. ':delayed', 0, 0)[1]
        if first:sub(7) == job.id then
            wake('sleepers', 't', 1) -- Whoever sleeps has set its clock by another one.
        end
        return true
    end
    if job.suspect then
        job.where, job.came = SUSPECT, next_came()
        call('ZADD', P .. ':suspects', job.due, spack('>I6', job.came) .. job.id)
        learn(job)
        S.waiting = S.waiting + 1
        S.suspects = nil
        wake('sleepers', 't', 1)
        return true
    end
    if put(one, job, back) then
        return true
    end
    return false
end
