-- SPDX-License-Identifier: Apache-2.0
-- Answers a record that could not be read. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    record: the error
-- Sets     the next element of `out` after `to`, and `to`: -2, where the record is of a wrong type
-- Returns  from the script, with the error, for any other error, which ends the batch
if not is_wrong_type(record) then
    return redis.error_reply(record.err)
end
to, out[to + 1] = to + 1, -2
