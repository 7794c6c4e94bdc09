-- Forget jobs, wherever they stand. An unknown id is no error.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  for each: the company's number in 4 bytes, as `take` gave it (0: not known), then the id
-- Returns   epoch
--
-- Atomic, because record, place and counts must go together: what is forgotten but stands in a line would be counted
-- for ever.
--
--- include: state though_full wake known companies turns line lines

local function withdraw(one, job)
    if job.where == DELAYED then
        call('ZREM', P .. ':delayed', spack('>I6', job.came) .. job.id)
    elseif job.where == SUSPECT then
        S.waiting, S.suspects = S.waiting - call('ZREM', P .. ':suspects', spack('>I6', job.came) .. job.id), nil
    elseif line_remove(one, job) then
        one.waiting = one.waiting - 1
        S.waiting = S.waiting - 1
        compete(one)
        see_hunger(one)
    end
end

for from = FIRST, #ARGV, 1000 do
    local last = math.min(from + 999, #ARGV)
    local ids = {}
    for place = from, last do
        ids[#ids + 1] = ARGV[place]:sub(5)
    end
    local leases = call('ZMSCORE', P .. ':active', unpack(ids))
    call('ZREM', P .. ':active', unpack(ids))
    local ended = {} -- jobs by company that were in work
    for place, id in ipairs(ids) do
        local number = sunpack('>I4', ARGV[from + place - 1])
        local key = bucket(id)
        local record = (number == 0 or not leases[place]) and call('HGET', key, id) or nil
        local gone = call('HDEL', key, id)
        S.known = S.known - gone
        if gone == 1 and leases[place] then
            number = record and sunpack('>I4', record) or number
            ended[number] = (ended[number] or 0) + 1
        elseif gone == 1 then
            local job = read_record(id, record)
            local one = company(job.number)
            if one then
                withdraw(one, job)
            end
        end
    end
    load_companies(ended)
    for number, count in pairs(ended) do
        if companies[number] then
            companies[number].active = companies[number].active - count
        end
    end
end
if suspects() > 0 then
    wake('sleepers', 't', 1) -- A suspect waits until nothing else is in flight.
end
return finish(0)
