/* SPDX-License-Identifier: Apache-2.0 */
/* See script_host.h. */
#include "transport/loopback/script_host.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/scripts.h"

extern const char script_commands[]; /* commands.lua */

/* The words of a script call before its keys: EVAL, the script, and how many keys there are. */
#define WORDS_BEFORE_KEYS 3

struct script_host {
    lua_State *lua;
    int scripts[SCRIPT_COUNT]; /* references to what they were compiled to */
    int functions;             /* of commands.lua */
};

/* struct.unpack of Redis's Lua, of doubles ("d") and 16 bits ("H"), the least byte first ("<"). */
static int unpack(lua_State *lua)
{
    size_t size;
    const char *format = luaL_checkstring(lua, 1);
    const unsigned char *bytes = (const unsigned char *) luaL_checklstring(lua, 2, &size);
    size_t at = (size_t) luaL_optinteger(lua, 3, 1) - 1;
    int count = 0;
    luaL_checkstack(lua, (int) strlen(format) + 1, "too many numbers");
    for (; *format != '\0'; format++) {
        const size_t width = *format == 'd' ? sizeof(double) : *format == 'H' ? 2 : 0;
        if (at + width > size) {
            return luaL_error(lua, "data string too short");
        }
        uint64_t bits = 0;
        for (size_t i = 0; i < width; i++) {
            bits |= (uint64_t) bytes[at + i] << (8 * i);
        }
        at += width;
        if (width == sizeof(double)) {
            double number;
            memcpy(&number, &bits, sizeof(number));
            lua_pushnumber(lua, number);
        } else if (width != 0) {
            lua_pushnumber(lua, (double) bits);
        }
        count += width != 0;
    }
    return count;
}

/* Compiles the scripts and runs commands.lua, which leaves its functions. */
static int prepare(lua_State *lua)
{
    struct script_host *host = lua_touserdata(lua, 1);
    static const char *const texts[SCRIPT_COUNT] = {
        [SCRIPT_NODES] = script_read_nodes,       [SCRIPT_AUTHORS] = script_read_authors,
        [SCRIPT_ENTRIES] = script_read_entries,   [SCRIPT_USE] = script_read_use,
        [SCRIPT_PAGE] = script_read_page,         [SCRIPT_HEARTBEAT] = script_heartbeat,
        [SCRIPT_OVERRIDES] = script_overrides,    [SCRIPT_LIMITS] = script_limits,
        [SCRIPT_WINDOW] = script_report_window,   [SCRIPT_BUCKET] = script_report_bucket,
        [SCRIPT_HISTORY] = script_report_history,
    };
    luaL_openlibs(lua);
    lua_newtable(lua);
    lua_pushcfunction(lua, unpack);
    lua_setfield(lua, -2, "unpack");
    lua_setglobal(lua, "struct");
    if (luaL_loadbuffer(lua, script_commands, strlen(script_commands), "=commands") != 0) {
        return lua_error(lua);
    }
    lua_call(lua, 0, 1);
    host->functions = luaL_ref(lua, LUA_REGISTRYINDEX);
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        if (luaL_loadbuffer(lua, texts[i], strlen(texts[i]), "=script") != 0) {
            return lua_error(lua);
        }
        host->scripts[i] = luaL_ref(lua, LUA_REGISTRYINDEX);
    }
    return 0;
}

struct script_host *script_host_open(void)
{
    struct script_host *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return NULL;
    }
    host->lua = luaL_newstate();
    if (host->lua == NULL || lua_cpcall(host->lua, prepare, host) != 0) {
        script_host_close(host);
        return NULL;
    }
    return host;
}

void script_host_close(struct script_host *host)
{
    if (host->lua != NULL) {
        lua_close(host->lua);
    }
    free(host);
}

/* Pushes a function of commands.lua. */
static void push_function(const struct script_host *host, const char *name)
{
    lua_rawgeti(host->lua, LUA_REGISTRYINDEX, host->functions);
    lua_getfield(host->lua, -1, name);
    lua_remove(host->lua, -2);
}

static void set_time(const struct script_host *host, uint64_t now_ns)
{
    push_function(host, "set_time");
    const uint64_t now_us = now_ns / NS_PER_US;
    lua_pushnumber(host->lua, (double) now_us);
    lua_call(host->lua, 1, 0);
}

static redisReply *reply_make(int type)
{
    redisReply *reply = calloc(1, sizeof(*reply));
    if (reply != NULL) {
        reply->type = type;
    }
    return reply;
}

static redisReply *reply_of(lua_State *lua);

static redisReply *text_reply(lua_State *lua, int type)
{
    redisReply *reply = reply_make(type);
    size_t length;
    const char *text = lua_tolstring(lua, -1, &length);
    if (reply != NULL) {
        reply->str = malloc(length + 1);
        reply->len = length;
    }
    if (reply == NULL || reply->str == NULL) {
        free(reply);
        return NULL;
    }
    memcpy(reply->str, text, length + 1);
    return reply;
}

static redisReply *array_reply(lua_State *lua)
{
    redisReply *reply = reply_make(REDIS_REPLY_ARRAY);
    const size_t count = lua_objlen(lua, -1);
    if (reply == NULL) {
        return NULL;
    }
    reply->element = calloc(count + 1, sizeof(void *));
    for (size_t i = 0; reply->element != NULL && i < count; i++) {
        lua_rawgeti(lua, -1, (int) i + 1);
        reply->element[i] = reply_of(lua);
        lua_pop(lua, 1);
        if (reply->element[i] == NULL) {
            break;
        }
        reply->elements = i + 1;
    }
    if (reply->elements != count) {
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

/* The value on top of the stack as Redis answers it (its manual, "Lua to RESP2 type conversion"). */
static redisReply *reply_of(lua_State *lua)
{
    switch (lua_type(lua, -1)) {
    case LUA_TNUMBER: {
        redisReply *reply = reply_make(REDIS_REPLY_INTEGER);
        if (reply != NULL) {
            reply->integer = (long long) lua_tonumber(lua, -1);
        }
        return reply;
    }
    case LUA_TSTRING:
        return text_reply(lua, REDIS_REPLY_STRING);
    case LUA_TTABLE: {
        lua_getfield(lua, -1, "err");
        redisReply *error = lua_isstring(lua, -1) ? text_reply(lua, REDIS_REPLY_ERROR) : NULL;
        lua_pop(lua, 1);
        return error != NULL ? error : array_reply(lua);
    }
    default:
        return reply_make(REDIS_REPLY_NIL);
    }
}

/* Sets a global to an array of words. */
static void set_words(lua_State *lua, const char *name, const struct command *command, int first, int end)
{
    lua_createtable(lua, end - first, 0);
    for (int i = first; i < end; i++) {
        lua_pushlstring(lua, command->argv[i], command->lengths[i]);
        lua_rawseti(lua, -2, i - first + 1);
    }
    lua_setglobal(lua, name);
}

redisReply *script_host_call(struct script_host *host, enum script script, const struct command *command,
                             uint64_t now_ns)
{
    lua_State *lua = host->lua;
    const int keys_end = WORDS_BEFORE_KEYS + (int) strtol(command->argv[WORDS_BEFORE_KEYS - 1], NULL, 10);
    set_time(host, now_ns);
    set_words(lua, "KEYS", command, WORDS_BEFORE_KEYS, keys_end);
    set_words(lua, "ARGV", command, keys_end, command->argc);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, host->scripts[script]);
    redisReply *reply = lua_pcall(lua, 0, 1, 0) == 0 ? reply_of(lua) : text_reply(lua, REDIS_REPLY_ERROR);
    lua_settop(lua, 0);
    return reply;
}

void script_host_command(struct script_host *host, const char *const *words, size_t count)
{
    push_function(host, "call");
    for (size_t i = 0; i < count; i++) {
        lua_pushstring(host->lua, words[i]);
    }
    lua_call(host->lua, (int) count, 0);
}

int script_host_snapshot(struct script_host *host)
{
    push_function(host, "snapshot");
    lua_call(host->lua, 0, 1);
    return luaL_ref(host->lua, LUA_REGISTRYINDEX);
}

void script_host_restore(struct script_host *host, int snapshot)
{
    push_function(host, "restore");
    lua_rawgeti(host->lua, LUA_REGISTRYINDEX, snapshot);
    lua_call(host->lua, 1, 0);
}

void script_host_forget_snapshot(struct script_host *host, int snapshot)
{
    luaL_unref(host->lua, LUA_REGISTRYINDEX, snapshot);
}

void script_host_clear(struct script_host *host, const char *part)
{
    push_function(host, "clear");
    lua_pushstring(host->lua, part);
    lua_call(host->lua, 1, 0);
}

struct script_host_total script_host_total(struct script_host *host, const char *part, uint64_t now_ns)
{
    struct script_host_total total = {0, 0};
    lua_State *lua = host->lua;
    set_time(host, now_ns);
    push_function(host, "records");
    lua_pushstring(lua, part);
    lua_call(lua, 1, 1);
    const int count = (int) lua_objlen(lua, -1);
    for (int i = 0; i + 3 <= count; i += 3) {
        lua_rawgeti(lua, -1, i + 2);
        total.records++;
        total.units += (uint64_t) (int64_t) lua_tonumber(lua, -1);
        lua_pop(lua, 1);
    }
    lua_settop(lua, 0);
    return total;
}

/* What `visit` of commands.lua calls. */
struct visit {
    loopback_record_fn call;
    void *arg;
};

static int visit_one(lua_State *lua)
{
    const struct visit *visit = lua_touserdata(lua, lua_upvalueindex(1));
    visit->call(visit->arg, lua_tostring(lua, 1), lua_tostring(lua, 2), (uint64_t) lua_tonumber(lua, 3),
                (uint64_t) lua_tonumber(lua, 4));
    return 0;
}

void script_host_each(struct script_host *host, uint64_t now_ns, loopback_record_fn call, void *arg)
{
    struct visit visit = {call, arg};
    set_time(host, now_ns);
    push_function(host, "each");
    lua_pushlightuserdata(host->lua, &visit);
    lua_pushcclosure(host->lua, visit_one, 1);
    lua_call(host->lua, 1, 0);
}
