-- The jobs that are known: id -> record, in hashes small enough to be kept packed (under 128 fields: 2 bytes of
-- overhead a field instead of 70). Buckets grow in number with the jobs, one at a time (linear hashing).
--
-- A record: company's number, kind (where it stands; 16 x the length of the store's handle), priority (+128: suspect),
-- due time, the handle; then when it came, for whatever does not stand in a run.

local RUN, LATE, RETURNED, DELAYED, SUSPECT = 0, 1, 2, 3, 4
local PER_BUCKET = 24 -- twice that at most; what is looked for in a packed hash is looked for one by one
local KNOWN = P .. ':known:'

local function hash_of(id)
    if #id == 16 then
        local first, last = sunpack('>I4xxxxxxxxI4', id)
        return first + last
    end
    local hash = 0
    for place = 1, #id do
        hash = (hash * 31 + id:byte(place)) % 4294967296
    end
    return hash
end

local base = 1
while base * 2 <= S.buckets do
    base = base * 2
end

local function bucket_number(id)
    local hash = hash_of(id)
    local number = hash % (base * 2)
    if number >= S.buckets then
        number = hash % base
    end
    return number
end

local function bucket(id)
    return KNOWN .. bucket_number(id)
end

local function split_buckets()
    while S.known > S.buckets * PER_BUCKET do
        local from = KNOWN .. (S.buckets - base)
        local fresh = S.buckets
        S.buckets = S.buckets + 1
        local all = call('HGETALL', from)
        local moved, gone = {}, {}
        for place = 1, #all, 2 do
            if bucket_number(all[place]) == fresh then
                moved[#moved + 1], moved[#moved + 2] = all[place], all[place + 1]
                gone[#gone + 1] = all[place]
            end
        end
        if #gone > 0 then
            call_many('HDEL', from, gone)
            call_many('HSET', KNOWN .. fresh, moved)
        end
        if S.buckets == base * 2 then
            base = S.buckets
        end
    end
end

local function pack_record(job)
    local record = spack('>I4BBI6', job.number, #job.ref * 16 + job.where, job.priority + (job.suspect and 128 or 0),
        job.due) .. job.ref
    if job.where ~= RUN then
        record = record .. spack('>I6', job.came)
    end
    return record
end

local function read_record(id, record)
    local number, kind, priority, due = sunpack('>I4BBI6', record)
    local length = floor(kind / 16)
    local job = { id = id, number = number, where = kind % 16, priority = priority % 128, suspect = priority >= 128,
        due = due, ref = record:sub(13, 12 + length) }
    job.written = job.where
    if job.where ~= RUN then
        job.came = sunpack('>I6', record, 13 + length)
    end
    return job
end

-- As the client reads it: kind, priority, due, handle, id.
local function shown(id, record)
    return record:sub(5, 12 + floor(record:byte(5) / 16)) .. id
end

-- As the client writes it, after two bytes that name the company among those of the call.
local function read_job(text)
    local place, kind, priority, due = sunpack('>I2BBI6', text)
    local length = floor(kind / 16)
    return place, { id = text:sub(11 + length), priority = priority % 128, suspect = priority >= 128, due = due,
        ref = text:sub(11, 10 + length), where = RUN }
end

local function known(id)
    local record = call('HGET', bucket(id), id)
    return record and read_record(id, record)
end

local function is_known(id)
    return call('HEXISTS', bucket(id), id) == 1
end

local function learn(job)
    call('HSET', bucket(job.id), job.id, pack_record(job))
    job.written = job.where
end

-- Whether it was new.
local function meet_job(job)
    local fresh = call('HSETNX', bucket(job.id), job.id, pack_record(job)) == 1
    if fresh then
        S.known = S.known + 1
        job.written = job.where
    end
    return fresh
end

local function forget(id)
    S.known = S.known - call('HDEL', bucket(id), id)
end
