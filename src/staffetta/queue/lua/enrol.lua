-- A worker has connected: is this the server, and the kind of order, that the jobs here were told to?
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]  the server's run_id
-- Returns  epoch, 1 if all jobs were forgotten (a restarted, restored or failed-over server may hold an older state:
--          the store tells everything anew), else 0
--
-- What companies have had and owe stays; so does the index of dead letters.
--
-- Atomic, because two workers that connect at once must forget once.
--
--- include: state though_full wake known companies turns line

local mode = (FAIR and 'fair:' or 'age:') .. ARGV[FIRST]
local before = call('GET', P .. ':server')
call('SET', P .. ':epoch', S.epoch)
if before == mode then
    return finish(0)
end
call('SET', P .. ':server', mode)
if not before then
    return finish(0)
end
for number = 0, S.buckets - 1 do
    call('UNLINK', P .. ':known:' .. string.format('%d', number))
end
for number = 0, floor(S.numbers / PER_BUCKET_OF_COMPANIES) do
    local key = string.format('%d', number)
    call('UNLINK', P .. ':end:' .. key)
    for _, field in ipairs(call('HKEYS', P .. ':company:' .. key)) do
        local one = tonumber(field) and company(tonumber(field)) -- Names stand beside what is kept.
        if one then
            for priority = 0, 10 do
                if has_run(one, priority) then
                    call('UNLINK', run_key(one, priority))
                end
            end
            call('UNLINK', late_key(one))
            one.waiting, one.kept_waiting, one.active, one.mask, one.quota, one.low = 0, 0, 0, 0, 0, BATCH_MAX
            one.counted, one.blocked, one.resting, one.more, one.missed, one.placed, one.late =
                false, false, false, false, false, false, false
        end
    end
end
for _, what in ipairs({ 'waiting:by_company', 'active', 'delayed', 'suspects', 'turns', 'resting', 'blocked', 'hungry',
    'feeding', 'sleepers', 'feeders' }) do
    call('UNLINK', P .. ':' .. what)
end
S.holder, S.left, S.weight_sum, S.known, S.waiting = 0, 0, 0, 0, 0
S.epoch = ARGV[2]
call('SET', P .. ':epoch', S.epoch)
return finish(1)
