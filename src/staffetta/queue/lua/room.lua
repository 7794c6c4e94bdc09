-- How many more waiting jobs of each company the queue would take now.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each
-- Returns   epoch, a number for each
--
-- Atomic, because a company's share depends on who else has something waiting at that moment.
--
--- include: state though_full wake known companies turns line lines

local company_of, _, count = read_companies(FIRST)
local answer = {}
for number = 1, count do
    local one = company_of(number)
    answer[number] = math.max(0, allowance(one) - one.waiting)
end
return finish(answer)
