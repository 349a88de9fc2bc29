/* SPDX-License-Identifier: Apache-2.0 */
/* See listening.h. */
#include "listening.h"

#include <stdio.h>
#include <string.h>

#include "gateway.h"
#include "log.h"

bool listening_check(const struct gateway *gateway, char *problem, size_t size)
{
    const struct gateway_options *options = &gateway->options;
    const struct activation *activation = &gateway->activation;
    for (size_t i = 0; i < activation->listener_count; i++) {
        const struct handed_listener *handed = &activation->listeners[i];
        if (handed->count > options->threads) {
            char text[ADDRESS_TEXT_SIZE];
            address_print(&handed->address, text);
            (void) snprintf(
                problem, size,
                "%s: %zu sockets were handed over for %u threads; give --threads %zu, or fewer ListenDatagram=", text,
                handed->count, options->threads, handed->count);
            return false;
        }
    }
    if (activation->metrics_fd >= 0 && options->metrics_text != NULL &&
        !address_is_same(&options->metrics, &activation->metrics)) {
        (void) snprintf(problem, size,
                        "--metrics %s: a socket for the pages was handed over at another address; leave one out",
                        options->metrics_text);
        return false;
    }
    return true;
}

/* Listens on one address. */
static int start_listener(struct gateway *gateway, const struct listener_request *request)
{
    const int number = listeners_open(gateway, request);
    if (number < 0) {
        log_line(WEIR_LOG_ERROR, "--listen %s: %s", request->text, strerror(-number));
        return -1;
    }
    const unsigned count = listeners_count_threads(gateway, (unsigned) number);
    if (count < gateway->worker_count) {
        log_line(WEIR_LOG_WARNING,
                 "%s: %u of %u threads serve the sockets that were handed over; give its ListenDatagram= once for each "
                 "thread, with ReusePort=yes, or --threads %u",
                 request->text, count, gateway->worker_count, count);
    }
    return listeners_serve(gateway, (unsigned) number) ? 0 : -1;
}

/* Listens on the sockets that were handed over. */
static int start_handed(struct gateway *gateway)
{
    for (size_t i = 0; i < gateway->activation.listener_count; i++) {
        const struct handed_listener *handed = &gateway->activation.listeners[i];
        char text[ADDRESS_TEXT_SIZE];
        address_print(&handed->address, text);
        const struct listener_request request = {
            .text = text, .address = handed->address, .handed = handed->fds, .handed_count = handed->count};
        if (start_listener(gateway, &request) != 0) {
            return -1;
        }
    }
    return 0;
}

int listening_start(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    if (start_handed(gateway) != 0) {
        return -1;
    }
    for (size_t i = 0; i < options->listen.count; i++) {
        const struct listener_request request = {.text = options->listen.texts[i], .address = options->listens[i]};
        /* An address whose sockets were handed over is served already. */
        if (activation_find(&gateway->activation, &request.address) == NULL && start_listener(gateway, &request) != 0) {
            return -1;
        }
    }
    return 0;
}
