-- What is kept of a company, under 64 bytes each so that it stays packed, and how one becomes known.

local COMPANY = '>ddI6I6I6I6I4I4I4I4I2B'
local NEWCOMER_TURNS = 1000
local COMPANIES_MAX = 100000
local PER_BUCKET_OF_COMPANIES = 16

local function bucket_of(what, number)
    return P .. what .. floor(number / PER_BUCKET_OF_COMPANIES)
end

local function read_company(number, kept, name)
    if not kept then
        return nil
    end
    local one = { number = number, name = name or '', last = {} }
    local flags
    one.weight, one.tag, one.rank, one.since, one.given, one.given_at, one.active, one.waiting, one.quota, one.low,
        one.mask, flags = sunpack(COMPANY, kept)
    one.rank = one.rank - NEWCOMER_TURNS
    one.counted = flags % 2 >= 1
    one.blocked = flags % 4 >= 2
    one.resting = flags % 8 >= 4
    one.more = flags % 16 >= 8
    one.missed = flags % 32 >= 16
    one.placed = flags % 64 >= 32
    one.rated = flags % 128 >= 64
    one.late = flags >= 128
    one.kept_waiting, one.kept = one.waiting, kept
    companies[number] = one
    return one
end

-- A company's bucket has two fields for each: its number (what is kept of it), and n with the number (its name).
local function company(number)
    local one = companies[number]
    if not one then
        local kept = call('HMGET', bucket_of(':company:', number), number, 'n' .. number)
        one = read_company(number, kept[1], kept[2])
    end
    return one
end

-- Several at once, one question for each bucket.
local function load_companies(numbers)
    local wanted = {}
    for number in pairs(numbers) do
        if not companies[number] then
            local key = bucket_of(':company:', number)
            wanted[key] = wanted[key] or {}
            table.insert(wanted[key], number)
            table.insert(wanted[key], 'n' .. number)
        end
    end
    for key, fields in pairs(wanted) do
        local kept = call('HMGET', key, unpack(fields))
        for place = 1, #fields, 2 do
            read_company(fields[place], kept[place], kept[place + 1])
        end
    end
end

local function pack_company(one)
    local flags = (one.counted and 1 or 0) + (one.blocked and 2 or 0) + (one.resting and 4 or 0) + (one.more and 8 or 0)
        + (one.missed and 16 or 0) + (one.placed and 32 or 0) + (one.rated and 64 or 0) + (one.late and 128 or 0)
    return spack(COMPANY, one.weight, one.tag, one.rank + NEWCOMER_TURNS, one.since, one.given, one.given_at,
        math.max(0, one.active), one.waiting, one.quota, one.low, one.mask, flags)
end

local function save_ends(one)
    local key = bucket_of(':end:', one.number)
    for _, which in ipairs({ 'end', 'cursor' }) do
        if one[which] then
            call('HSET', key, one.number .. which, one[which])
        else
            call('HDEL', key, one.number .. which)
        end
    end
end

save_companies = function()
    local fields, waiting, none = {}, {}, {}
    for number, one in pairs(companies) do
        local packed = pack_company(one)
        if packed ~= one.kept then
            local key = bucket_of(':company:', number)
            local some = fields[key] or {}
            some[#some + 1], some[#some + 2] = number, packed
            fields[key] = some
        end
        if one.waiting ~= one.kept_waiting then
            if one.waiting > 0 then
                waiting[#waiting + 1], waiting[#waiting + 2] = one.name, string.format('%d', one.waiting)
            else
                none[#none + 1] = one.name
            end
        end
        if one.ends_changed then
            save_ends(one)
        end
    end
    for key, some in pairs(fields) do
        call('HSET', key, unpack(some))
    end
    call_many('HSET', P .. ':waiting:by_company', waiting)
    call_many('HDEL', P .. ':waiting:by_company', none)
end

-- Where the line ends and where the next page begins, as the client shows a job; nil where there is none.
local function ends(one)
    if not one.ends_read then
        one.ends_read = true
        if one.more or one.missed then
            local kept = call('HMGET', bucket_of(':end:', one.number), one.number .. 'end', one.number .. 'cursor')
            one['end'], one.cursor = kept[1] or nil, kept[2] or nil
        end
    end
    return one
end

local function set_ends(one, last, cursor)
    ends(one)
    if one['end'] ~= last or one.cursor ~= cursor then
        one['end'], one.cursor, one.ends_changed = last, cursor, true
    end
end

-- A company nobody speaks of any more makes room for new names; one that owes or has something stays.
local function forget_some()
    local some = call('HRANDFIELD', P .. ':companies', 16, 'WITHVALUES')
    for place = 1, #some, 2 do
        local one = company(tonumber(some[place + 1]))
        if one and not (one.counted or one.blocked or one.resting or one.rated or one.missed or one.placed)
            and one.active == 0 and S.holder ~= one.number and one.tag <= S.virtual_time then
            call('HDEL', P .. ':companies', some[place])
            call('HDEL', bucket_of(':company:', one.number), one.number, 'n' .. one.number)
            companies[one.number] = nil
        end
    end
end

-- `spec`: packed weight, rate and the rate's duration (0: no rate), for one that is not known yet.
meet = function(name, spec)
    local one = by_name[name]
    if one then
        return one
    end
    local weight, rate, duration = sunpack('>ddd', spec)
    local number = tonumber(call('HGET', P .. ':companies', name) or 0)
    one = number > 0 and company(number) or nil
    if not one then
        if S.numbers >= COMPANIES_MAX and call('HLEN', P .. ':companies') >= COMPANIES_MAX then
            forget_some()
        end
        S.numbers = S.numbers + 1
        number = S.numbers
        call('HSET', P .. ':companies', name, number)
        call('HSET', bucket_of(':company:', number), 'n' .. number, name)
        one = { number = number, last = {}, weight = weight, tag = 0, rank = 0, since = 0, given = 0, given_at = 0,
            active = 0, waiting = 0, quota = 0, low = BATCH_MAX, mask = 0, kept_waiting = 0 }
        companies[number] = one
    end
    if (rate > 0) ~= (one.rated or false) then
        one.rated = rate > 0
        if one.rated then
            call('HSET', P .. ':rates', number, spack('>dd', rate, duration))
        else
            call('HDEL', P .. ':rates', number)
        end
    end
    one.name = name
    by_name[name] = one
    return one
end
