-- SPDX-License-Identifier: Apache-2.0
-- Sets the time to live of a key. Statements, not a function: a failure ends the script.
--
-- Reads    key, ttl_ms: the time to live in milliseconds, as a text
-- Returns  from the script, with the error, if Redis refuses. A key that then has no time to live is deleted, because
--          such a key would stay for ever
local reply = pcall('PEXPIRE', key, ttl_ms)
if type(reply) == 'table' then
    if call('PTTL', key) < 0 then
        call('DEL', key)
    end
    return reply
end
