/* SPDX-License-Identifier: Apache-2.0 */
/* See protocol.h: the functions of nginx's stream. */
#include "protocol.h"

#include "stream_weir.h"

const char *protocol_name(void)
{
    return "stream";
}

struct block *protocol_block(const ngx_conf_t *cf)
{
    struct stream_weir *stream = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module);
    return &stream->block;
}

bool protocol_compile(ngx_conf_t *cf, const ngx_str_t *text, struct expression *out)
{
    ngx_str_t source = *text;
    ngx_stream_complex_value_t *compiled = ngx_pcalloc(cf->pool, sizeof(*compiled));
    ngx_stream_compile_complex_value_t compile = {.cf = cf, .value = &source, .complex_value = compiled};
    if (compiled == NULL || ngx_stream_compile_complex_value(&compile) != NGX_OK) {
        return false;
    }
    *out = (struct expression){.text = *text, .constant = compiled->lengths == NULL, .compiled = compiled};
    return true;
}

bool protocol_evaluate(const struct asker *asker, const struct expression *expression, ngx_str_t *out)
{
    return ngx_stream_complex_value((ngx_stream_session_t *) asker->request, expression->compiled, out) == NGX_OK;
}

ngx_str_t protocol_variable(const struct asker *asker, const ngx_str_t *name)
{
    ngx_str_t copy = *name;
    const ngx_stream_variable_value_t *value =
        ngx_stream_get_variable((ngx_stream_session_t *) asker->request, &copy, ngx_hash_key(name->data, name->len));
    return value != NULL && value->valid && !value->not_found ? (ngx_str_t){value->len, value->data}
                                                              : (ngx_str_t){0, NULL};
}
