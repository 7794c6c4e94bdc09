-- Give leased jobs back, due at their due time; one that is not leased is offered as if it were new.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3…]  number of companies, then name and figures of each; then the jobs
-- Returns   epoch
--
-- Atomic, because between the end of the lease and the new place the job would stand nowhere.
--
--- include: state though_full wake known companies turns line lines

local company_of, from = read_companies(FIRST)
local news = 0
for place = from, #ARGV do
    local which, job = read_job(ARGV[place])
    local one = company_of(which)
    local leased = call('ZREM', P .. ':active', job.id) == 1
    job.number = one.number
    local fresh
    if leased then
        local before = known(job.id)
        local holder = before and company(before.number)
        if holder then
            holder.active = holder.active - 1
        else
            S.known = S.known + 1
        end
        learn(job)
        fresh = true
    else
        fresh = meet_job(job)
    end
    if fresh then
        if job.due > NOW or job.suspect then
            fresh = enter(one, job, leased)
        else
            fresh = put(one, job, leased)
            news = news + 1
        end
        if not fresh then
            forget(job.id)
        end
    end
end
split_buckets()
wake('sleepers', 't', news)
return finish(0)
