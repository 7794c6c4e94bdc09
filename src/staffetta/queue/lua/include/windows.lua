-- At most `max` jobs in any `duration`: `mail/limiter.py` word by word. Steps of 1/200 of the duration, oldest first,
-- in a LIST: number of the step, jobs given in it.

local STEPS = 200

local function make_window(key, max, duration, given)
    return { key = key, max = max, duration = duration, given = given, step = math.max(1, floor(duration / STEPS)) }
end

local function leaves_at(window, step)
    return (step + 1) * window.step - 1 + window.duration
end

local function step_at(window, place)
    local kept = call('LINDEX', window.key, place)
    if kept then
        return sunpack('>I6I4', kept)
    end
end

local function forget_steps(window)
    local last = step_at(window, -1)
    if not last then
        window.given = 0
        return
    end
    if NOW < last * window.step - window.duration then
        -- The clock was put back by more than the window: waiting for the old time to return would stop all.
        call('DEL', window.key)
        window.given = 0
        return
    end
    while true do
        local step, count = step_at(window, 0)
        if not step or leaves_at(window, step) > NOW then
            return
        end
        call('LPOP', window.key)
        window.given = window.given - count
    end
end

local function room_in(window)
    forget_steps(window)
    return math.max(0, window.max - window.given)
end

local function spend(window, count)
    forget_steps(window)
    local step = floor(NOW / window.step)
    local last, before = step_at(window, -1)
    if last and last >= step then
        call('LSET', window.key, -1, spack('>I6I4', last, before + count))
    else
        call('RPUSH', window.key, spack('>I6I4', step, count))
    end
    window.given = window.given + count
    window.spent = true
end

local function room_again_at(window)
    if room_in(window) > 0 then
        return NOW
    end
    return leaves_at(window, (step_at(window, 0)))
end

local windows = {}

-- A company's own rate, or nil.
local function window_of(one)
    if not one.rated then
        return nil
    end
    if not windows[one.number] then
        local kept = call('HGET', P .. ':rates', one.number)
        if not kept then
            return nil
        end
        local max, duration = sunpack('>dd', kept)
        local given = #kept > 16 and sunpack('>I6', kept, 17) or 0
        windows[one.number] = make_window(P .. ':window:' .. string.format('%d', one.number), max, duration, given)
    end
    return windows[one.number]
end

local function save_windows()
    for number, window in pairs(windows) do
        call('HSET', P .. ':rates', number, spack('>ddI6', window.max, window.duration, math.max(0, window.given)))
    end
end

local function has_room(one)
    local window = window_of(one)
    return not window or room_in(window) > 0
end

-- The limit over all workers, or nil.
local function shared_limit(max, duration)
    if max > 0 then
        return make_window(P .. ':limiter', max, duration, S.limited)
    end
end
