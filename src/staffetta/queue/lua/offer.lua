-- Make jobs known: due ones wait for their company's turn, later ones until their time. A known id changes nothing.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each; then the jobs
-- Returns   epoch, the places (from 1) of the jobs that found no room
--
-- Atomic, because a job that is known but stands nowhere would never be given, and one that stands in a line of a
-- company that does not compete neither.
--
--- include: state wake known companies turns line lines

local company_of, from = read_companies(FIRST)
local refused, news = {}, 0
for place = from, #ARGV do
    local which, job = read_job(ARGV[place])
    if not is_known(job.id) then
        local one = company_of(which)
        job.number = one.number
        meet_job(job)
        local later = job.due > NOW or job.suspect
        if later and enter(one, job) then
            news = news + (job.due > NOW and 0 or 1)
        elseif not later and put(one, job) then
            news = news + 1
        else
            forget(job.id)
            refused[#refused + 1] = place - from + 1
        end
    end
end
split_buckets()
wake('sleepers', 't', news)
return finish(refused)
