-- Bring the next page of a company's line: its due jobs in the store behind `after`, in the line's order.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…5]  1, the company's name and figures
-- ARGV[6]    1 if there may be further ones behind this page; 2: the same, and a few jobs are taken though memory is
--            full, for a company that is owed its turn holds up all others
-- ARGV[7]    the job behind which the page began (empty: the beginning)
-- ARGV[8…]   the jobs
-- Returns    epoch, how many were new here
--
-- Atomic, because page, end of line and turn belong together: else a company would be served past what is owed.
--
--- include: state wake known companies turns line lines

local company_of, from = read_companies(FIRST)
local one = company_of(1)
local more = ARGV[from] ~= '0'
if ARGV[from] == '2' then
    call('DEL', P .. ':nothing')
end
local last = ARGV[from + 1] ~= '' and ARGV[from + 1] or nil
local most = allowance(one)
local fresh = 0
for place = from + 2, #ARGV do
    local _, job = read_job(ARGV[place])
    job.number = one.number
    if one.waiting >= most then
        if not is_known(job.id) then
            more = true
            break
        end
    elseif meet_job(job) then
        fresh = fresh + 1
        if job.suspect then
            job.where, job.came = SUSPECT, next_came()
            call('ZADD', P .. ':suspects', job.due, spack('>I6', job.came) .. job.id)
            learn(job)
            S.waiting = S.waiting + 1
            S.suspects = nil
        else
            in_line(one, job)
        end
    end
    last = ARGV[place]:sub(3)
end
ends(one)
if more or one.missed then
    one.more = true
    local far = one['end']
    if last then
        local priority, due = place_of(last)
        if not far or behind({ priority = priority, due = due }, far) then
            far = last
        end
    end
    set_ends(one, far, last)
else
    all_told(one)
end
one.low = low_of(most)
compete(one)
see_hunger(one)
call('HDEL', P .. ':feeding', one.number)
split_buckets()
wake('sleepers', 't', math.max(fresh, 1))
return finish(fresh)
