-- Jobs of companies are not given out until `until`, or from now on again (0). They keep their place.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each; then packed: until when, 0: not blocked any more
-- Returns   epoch
--
-- Atomic, because it decides who competes for the turn. It ends by itself, should who blocked it be gone.
--
--- include: state though_full wake known companies turns line lines

local company_of, from, count = read_companies(FIRST)
local ends_at = sunpack('>d', ARGV[from])
for number = 1, count do
    local one = company_of(number)
    one.blocked = ends_at > 0
    if one.blocked then
        call('ZADD', P .. ':blocked', ends_at, spack('>I4', one.number))
    else
        call('ZREM', P .. ':blocked', spack('>I4', one.number))
    end
    compete(one)
    see_hunger(one)
    if not one.blocked then
        wake('sleepers', 't', math.max(one.waiting, 1))
    end
end
return finish(0)
