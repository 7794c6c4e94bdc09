-- What every move shares: its arguments, the queue's few numbers, and how it ends.
--
-- KEYS[1]  {email:send}: the only declared key. All others begin with it, so that they share its slot.
-- ARGV[1]  packed: now, batch_max, fair (1 or 0), waiting_max, per_company_max, delayed_max
-- ARGV[2]  8 bytes: the epoch to begin, should this queue be empty (new, or wiped)
-- ARGV[3…] the move's own, from ARGV[FIRST] on
--
-- Keys: state (numbers), epoch, waiting, waiting:by_company, active, delayed, dlq (for people), suspects, turns (who
-- competes), resting, blocked, hungry, feeding, sleepers, feeders, wake:<worker>, limiter, rates, companies
-- (name -> number), company:<n>, end:<n> (buckets of 16), line:<number>:<priority>, late:<number>,
-- window:<number>, known:<bucket> (id -> record).
--
-- Whatever may be called twice has the same effect as once: a client may send a command again.

local P, call = KEYS[1], redis.call
local spack, sunpack, floor = struct.pack, struct.unpack, math.floor
local FIRST = 3

local NOW, BATCH_MAX, FAIR, WAITING_MAX, PER_COMPANY_MAX, DELAYED_MAX = sunpack('>dddddd', ARGV[1])
FAIR = FAIR == 1
local FLOOR = 2 * BATCH_MAX
PER_COMPANY_MAX = math.max(PER_COMPANY_MAX, FLOOR)
local AT_ONCE = 2000 -- what falls due by time alone is handled in such pieces, or one call would hold up all others

local STATE = '>dI6I4I4dI4I6I6I5I6I5c8'
local S = { virtual_time = 0, turn = 0, holder = 0, left = 0, weight_sum = 0, numbers = 0, came = 0, known = 0,
    buckets = 1, waiting = 0, limited = 0, epoch = ARGV[2] }
local was_waiting
do
    local kept = call('GET', P .. ':state')
    if kept then
        S.virtual_time, S.turn, S.holder, S.left, S.weight_sum, S.numbers, S.came, S.known, S.buckets, S.waiting,
            S.limited, S.epoch = sunpack(STATE, kept)
        was_waiting = S.waiting
    end
end

-- What was touched is written once, at the end.
local companies, by_name = {}, {}
local save_companies -- in companies.lua

local function save_state()
    if S.known == 0 then
        S.buckets = 1
    end
    call('SET', P .. ':state', spack(STATE, S.virtual_time, S.turn, S.holder, S.left, S.weight_sum, S.numbers, S.came,
        S.known, S.buckets, S.waiting, S.limited, S.epoch))
    if S.waiting ~= was_waiting then
        call('SET', P .. ':waiting', string.format('%d', S.waiting))
    end
end

local function finish(answer)
    if save_companies then
        save_companies()
    end
    save_state()
    return { S.epoch, answer }
end

-- The companies that a call speaks of: how many, then name and figures of each. Where what follows begins.
local meet -- in companies.lua
local function read_companies(place)
    local named = {}
    for number = 1, tonumber(ARGV[place]) do
        named[number] = { ARGV[place + 2 * number - 1], ARGV[place + 2 * number] }
    end
    return function(number)
        return meet(named[number][1], named[number][2])
    end, place + 2 * #named + 1, #named
end

local function next_came()
    S.came = S.came + 1
    return S.came
end

-- A call for many keys or members, in pieces that fit Lua's stack.
local function call_many(command, key, values)
    local answers = 0
    for from = 1, #values, 1000 do
        local answer = call(command, key, unpack(values, from, math.min(from + 999, #values)))
        if type(answer) == 'number' then
            answers = answers + answer
        end
    end
    return answers
end
