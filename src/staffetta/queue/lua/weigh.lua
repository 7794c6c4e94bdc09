-- Give companies their weights, at once.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each, the new weight among them
-- Returns   epoch
--
-- Atomic, because what a company owes, its place in the order and the sum of all weights change together.
--
--- include: state though_full wake known companies turns line lines windows

local company_of, _, count = read_companies(FIRST)
for number = 1, count do
    local one = company_of(number)
    local weight, rate, duration = sunpack('>ddd', ARGV[FIRST + 2 * number])
    local window = window_of(one)
    if window then
        window.max, window.duration = rate, duration
    end
    if one.weight ~= weight then
        set_weight(one, weight)
    end
end
save_windows()
return finish(0)
