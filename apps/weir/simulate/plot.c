/* SPDX-License-Identifier: Apache-2.0 */
/* See plot.h. Drawn by cairo, which writes SVG and PNG alike. */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef WEIR_HAS_CAIRO

const char *plot_lacks(void)
{
    return "weir simulate: this weir was built without cairo (libcairo2-dev), and draws nothing; leave out --plot";
}

int plot_write(struct output *out, const struct report *report, const char *path)
{
    (void) report;
    (void) path;
    output_fault(out, plot_lacks());
    return CODE_UNASKED;
}

#else

#include <cairo-svg.h>
#include <cairo.h>

/* The picture and the places of its charts, in points. */
#define PICTURE_WIDTH  900
#define PICTURE_HEIGHT 640
#define CHART_LEFT     80.0
#define CHART_WIDTH    790.0
#define TIME_TOP       50.0
#define PEAKS_TOP      370.0
#define CHART_HEIGHT   220.0
#define TEXT_SIZE      12.0

/* Marks on an axis, at most. */
#define MARKS          5

/* Bars of the lower chart: the busiest second had up to 1, 2, 4 ... requests. */
#define PEAK_BARS      24

struct colour {
    double red, green, blue;
};

static const struct colour grid = {0.85, 0.85, 0.85}, ink = {0.2, 0.2, 0.2}, offered = {0.6, 0.6, 0.6},
                           admitted = {0.1, 0.45, 0.75}, denied = {0.85, 0.25, 0.15}, denied_old = {0.9, 0.6, 0.1};

const char *plot_lacks(void)
{
    return NULL;
}

static void use(cairo_t *cr, struct colour colour)
{
    cairo_set_source_rgb(cr, colour.red, colour.green, colour.blue);
}

/* Text at a place; `align`: the part of its width that stands before the place. */
static void put_text(cairo_t *cr, double x, double y, double align, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(cr, text, &extents);
    cairo_move_to(cr, x - align * extents.x_advance, y);
    cairo_show_text(cr, text);
}

/* A round step for an axis that goes to `most`. */
static double step_of(double most)
{
    const double rough = most / MARKS;
    const double decade = pow(10, floor(log10(rough)));
    const double part = rough / decade;
    return decade * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void put_number_axis(cairo_t *cr, double top, double most, const char *title)
{
    char text[32];
    const double step = step_of(most);
    const unsigned count = (unsigned) (most / step + 1e-9);
    for (unsigned i = 0; i <= count; i++) {
        const double at = step * i;
        const double y = top + CHART_HEIGHT * (1 - at / most);
        use(cr, grid);
        cairo_move_to(cr, CHART_LEFT, y);
        cairo_line_to(cr, CHART_LEFT + CHART_WIDTH, y);
        cairo_stroke(cr);
        use(cr, ink);
        (void) snprintf(text, sizeof(text), "%.6g", at);
        put_text(cr, CHART_LEFT - 6, y + 4, 1, text);
    }
    put_text(cr, CHART_LEFT, top - 12, 0, title);
}

static void put_legend(cairo_t *cr, double right, struct colour colour, const char *text)
{
    use(cr, colour);
    cairo_rectangle(cr, right, TIME_TOP - 21, 10, 10);
    cairo_fill(cr);
    use(cr, ink);
    put_text(cr, right + 14, TIME_TOP - 12, 0, text);
}

enum curve { CURVE_OFFERED, CURVE_ADMITTED, CURVE_DENIED, CURVE_DENIED_OLD };

static double value_of(const struct timeline *t, size_t step, enum curve curve)
{
    const struct step *s = &t->steps[step];
    const uint64_t counts[] = {[CURVE_OFFERED] = s->requests,
                               [CURVE_ADMITTED] = s->requests - s->denied,
                               [CURVE_DENIED] = s->denied,
                               [CURVE_DENIED_OLD] = s->denied_old};
    return (double) counts[curve] / (double) t->step_s;
}

/* A curve of steps, as counts are of whole steps. */
static void put_curve(cairo_t *cr, const struct timeline *t, double most, enum curve curve, struct colour colour)
{
    const double width = CHART_WIDTH / (double) t->count;
    use(cr, colour);
    cairo_new_path(cr); /* text leaves a point behind */
    for (size_t i = 0; i < t->count; i++) {
        const double y = TIME_TOP + CHART_HEIGHT * (1 - value_of(t, i, curve) / most);
        cairo_line_to(cr, CHART_LEFT + width * (double) i, y);
        cairo_line_to(cr, CHART_LEFT + width * (double) (i + 1), y);
    }
    cairo_stroke(cr);
}

static void put_times(cairo_t *cr, const struct timeline *t)
{
    char text[REPORT_TIME_SIZE];
    for (int i = 0; i <= MARKS - 1; i++) {
        const double part = (double) i / (MARKS - 1);
        const uint64_t second = t->first_s + (uint64_t) (part * (double) (t->count * t->step_s));
        put_text(cr, CHART_LEFT + part * CHART_WIDTH, TIME_TOP + CHART_HEIGHT + 18, part,
                 report_time(text, second * 1000));
    }
}

static void put_time_chart(cairo_t *cr, const struct report *report)
{
    const struct timeline *t = &report->replay->timeline;
    double most = 0;
    for (size_t i = 0; i < t->count; i++) {
        most = fmax(most, value_of(t, i, CURVE_OFFERED));
    }
    put_number_axis(cr, TIME_TOP, most, "requests a second");
    put_curve(cr, t, most, CURVE_OFFERED, offered);
    put_curve(cr, t, most, CURVE_ADMITTED, admitted);
    put_curve(cr, t, most, CURVE_DENIED, denied);
    put_legend(cr, 500, offered, "offered");
    put_legend(cr, 580, admitted, "admitted");
    put_legend(cr, 670, denied, "denied");
    if (report->replay->side_count > 1) {
        put_curve(cr, t, most, CURVE_DENIED_OLD, denied_old);
        put_legend(cr, 750, denied_old, "denied by the old");
    }
    use(cr, ink);
    put_times(cr, t);
}

static void put_peak_chart(cairo_t *cr, const struct report *report)
{
    const struct clients *c = &report->replay->clients;
    uint64_t bars[PEAK_BARS] = {0}, most = 1;
    int last = 0;
    char text[32];
    for (size_t i = 0; i < c->count; i++) {
        int bar = 0;
        while (bar < PEAK_BARS - 1 && c->all[i].peak > UINT32_C(1) << bar) {
            bar++;
        }
        bars[bar] += clients_sampled(c, &c->all[i]);
        most = bars[bar] > most ? bars[bar] : most;
        last = bars[bar] != 0 && bar > last ? bar : last;
    }
    put_number_axis(cr, PEAKS_TOP, (double) most, "keys, by their requests in their busiest second");
    const double width = CHART_WIDTH / (last + 1);
    for (int i = 0; i <= last; i++) {
        const double height = CHART_HEIGHT * (double) bars[i] / (double) most;
        use(cr, admitted);
        cairo_rectangle(cr, CHART_LEFT + width * i + 2, PEAKS_TOP + CHART_HEIGHT - height, width - 4, height);
        cairo_fill(cr);
        use(cr, ink);
        if (i < 2) {
            (void) snprintf(text, sizeof(text), "%d", i + 1);
        } else {
            (void) snprintf(text, sizeof(text), "%u-%u", (1U << (i - 1)) + 1, 1U << i);
        }
        put_text(cr, CHART_LEFT + width * (i + 0.5), PEAKS_TOP + CHART_HEIGHT + 18, 0.5, text);
    }
}

static void draw(cairo_t *cr, const struct report *report)
{
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, TEXT_SIZE);
    cairo_set_line_width(cr, 1.5);
    put_time_chart(cr, report);
    put_peak_chart(cr, report);
}

int plot_write(struct output *out, const struct report *report, const char *path)
{
    const bool svg = strcmp(path + strlen(path) - 4, ".svg") == 0;
    cairo_surface_t *surface = svg ? cairo_svg_surface_create(path, PICTURE_WIDTH, PICTURE_HEIGHT)
                                   : cairo_image_surface_create(CAIRO_FORMAT_RGB24, PICTURE_WIDTH, PICTURE_HEIGHT);
    cairo_t *cr = cairo_create(surface);
    draw(cr, report);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS && !svg) {
        status = cairo_surface_write_to_png(surface, path);
    }
    cairo_surface_finish(surface);
    status = status == CAIRO_STATUS_SUCCESS ? cairo_surface_status(surface) : status;
    cairo_surface_destroy(surface);
    if (status != CAIRO_STATUS_SUCCESS) {
        output_fault_of(out, path, cairo_status_to_string(status));
        return CODE_OUTPUT;
    }
    return CODE_GOOD;
}

#endif
