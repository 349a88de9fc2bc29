-- SPDX-License-Identifier: Apache-2.0
-- Answers a record that could not be read. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    record: the error; ANSWERS: numbers in the answer of each record
-- Sets     the next ANSWERS elements of `out` after `to`: status 1, then zeros, where the record is of a wrong type
-- Returns  from the script, with the error, for any other error, which ends the batch
if not is_wrong_type(record) then
    return redis.error_reply(record.err)
end
out[to + 1] = 1
for n = 2, ANSWERS do
    out[to + n] = 0
end
