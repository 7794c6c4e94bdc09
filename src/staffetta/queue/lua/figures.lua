-- Companies with their figures, page by page.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]  packed: the first bucket of 64 companies, how many buckets
-- Returns  epoch, {companies ever met, then of each: name, packed waiting, active, weight, rounds without processing,
--          jobs in a row, total processed, last processed at}
--
-- Atomic, so that a page belongs to one moment; nothing is changed.
--
--- include: state wake known companies turns

local from, count = sunpack('>dd', ARGV[FIRST])
local answer = { S.numbers }
for number = from, from + count - 1 do
    local key = string.format('%d', number)
    local names = call('HGETALL', P .. ':name:' .. key)
    for place = 1, #names, 2 do
        local one = company(tonumber(names[place]))
        if one then
            local rounds = one.placed and S.turn - math.max(one.since, one.rank) or 0
            local row = holds(one) and BATCH_MAX - S.left or 0
            answer[#answer + 1] = names[place + 1]
            answer[#answer + 1] = spack('>ddddddd', one.waiting, one.active, one.weight, rounds, row, one.given,
                one.given_at)
        end
    end
end
return { S.epoch, answer }
