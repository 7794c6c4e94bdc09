-- Companies with their figures, page by page.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]  packed: the first bucket of 16 companies, how many buckets
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
    local fields = call('HGETALL', P .. ':company:' .. key)
    local names = {}
    for place = 1, #fields, 2 do
        names[fields[place]] = fields[place + 1]
    end
    for place = 1, #fields, 2 do
        local one = tonumber(fields[place]) and read_company(tonumber(fields[place]), fields[place + 1], names['n' .. fields[place]])
        if one then
            local rounds = one.placed and S.turn - math.max(one.since, one.rank) or 0
            local row = holds(one) and BATCH_MAX - S.left or 0
            answer[#answer + 1] = one.name
            answer[#answer + 1] = spack('>ddddddd', one.waiting, one.active, one.weight, rounds, row, one.given,
                one.given_at)
        end
    end
end
return { S.epoch, answer }
