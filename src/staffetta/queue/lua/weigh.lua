-- Give companies their weights, at once.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each, the new weight among them
-- Returns   epoch
--
-- Atomic, because what a company owes, its place in the order and the sum of all weights change together.
--
--- include: state wake known companies turns line lines

local company_of, _, count = read_companies(FIRST)
for number = 1, count do
    local one = company_of(number)
    local weight = sunpack('>d', ARGV[FIRST + 2 * number])
    if one.weight ~= weight then
        set_weight(one, weight)
    end
end
return finish(0)
