-- Tell whether the store holds more due jobs of companies than were told here.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each; then for each 1 (there is more) or 0
-- Returns   epoch
--
-- Atomic, because it decides who competes for the turn.
--
--- include: state though_full wake known companies turns line lines

-- The end of what is told: the last by the store's order, which by age need not be the last of the line.
local function furthest(one)
    if FAIR then
        return one.waiting > 0 and line_last(one) or nil
    end
    return nil
end

local ENOUGH = 1000 -- A line this long is asked about again when it is shorter: reading it anew would find it here.
local company_of, from, count = read_companies(FIRST)
for number = 1, count do
    local one = company_of(number)
    local more = ARGV[from + number - 1] == '1'
    if more and not one.more and one.waiting <= ENOUGH then
        local last = furthest(one)
        one.more = true
        one.ends_read, one['end'], one.cursor = true, nil, nil
        set_ends(one, last and show(last) or nil, nil)
        one.ends_changed = true
    elseif not more and not one.missed then
        all_told(one)
    end
    compete(one)
    see_hunger(one)
end
return finish(0)
