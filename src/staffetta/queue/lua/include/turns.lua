-- Whose turn it is: `mail/fairness.py` word by word. A company's place in the order is an entry of `turns`:
-- score its tag, member its rank and its number, so that equal tags go by rank, then by number.

local function place_of_turn(one)
    return spack('>I6I4', one.rank + NEWCOMER_TURNS, one.number)
end

local function push(one)
    call('ZADD', P .. ':turns', one.tag, place_of_turn(one))
    one.placed = true
end

local function unplace(one)
    if one.placed then
        call('ZREM', P .. ':turns', place_of_turn(one))
        one.placed = false
    end
end

local function holds(one)
    return S.holder == one.number
end

local function end_turn()
    S.holder, S.left = 0, 0
end

local function join(one)
    if one.placed or holds(one) then
        return
    end
    one.since = S.turn
    if one.given == 0 then
        one.rank = S.turn - NEWCOMER_TURNS
    end
    if FAIR and one.tag < S.virtual_time then
        one.tag = S.virtual_time
    end
    push(one)
end

local function peek()
    if S.holder > 0 then
        local holder = company(S.holder)
        if holder then
            return holder
        end
        end_turn()
    end
    local first = call('ZRANGE', P .. ':turns', 0, 0)[1]
    while first do
        local one = company((sunpack('>I4', first, 7)))
        if one then
            return one
        end
        call('ZREM', P .. ':turns', first)
        first = call('ZRANGE', P .. ':turns', 0, 0)[1]
    end
    return nil
end

-- The same, but taken off the order: its turn begins, or it is put back.
local function pop()
    if S.holder > 0 then
        return peek()
    end
    while true do
        local first = call('ZPOPMIN', P .. ':turns')[1]
        if not first then
            return nil
        end
        local one = company((sunpack('>I4', first, 7)))
        if one then
            one.placed = false
            return one
        end
    end
end

local function begin_turn(one)
    unplace(one)
    S.turn = S.turn + 1
    S.holder, S.left = one.number, BATCH_MAX
    one.rank = S.turn
    if FAIR then
        S.virtual_time = one.tag
        one.tag = one.tag + BATCH_MAX / one.weight
    end
end

local function leave(one)
    if holds(one) then
        if FAIR then
            one.tag = one.tag - S.left / one.weight
        end
        end_turn()
    end
    unplace(one)
end

local function moved(one)
    if one.placed then
        push(one)
    end
end

local function set_weight(one, weight)
    if one.counted then
        S.weight_sum = S.weight_sum + (weight - one.weight)
    end
    local ahead = one.tag - S.virtual_time
    if FAIR and ahead > 0 then
        one.tag = S.virtual_time + ahead * (one.weight / weight)
    end
    one.weight = weight
    moved(one)
end
