/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir simulate draws, line by line: the test is cairo, and notes each line, bar and text with its place and
 * colour.
 *
 * Guards: apps/weir/simulate/plot.c
 */
#include <cairo-svg.h>
#include <cairo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/weir/simulate/plot.h"
#include "support/support.h"

#define LEFT   80
#define WIDTH  790
#define TOP    50
#define LOWER  370
#define HEIGHT 220

static struct {
    char notes[400][300]; /* what was drawn */
    size_t count;
    char colour[40], path[200];
    double x, y;
    bool has_point;
    char file[100], png[100], fault[200];
    cairo_status_t of_drawing, of_surface, of_png;
    int open;
} drawn;

static void note(const char *kind, const char *text)
{
    assert_true(drawn.count < 400);
    (void) snprintf(drawn.notes[drawn.count++], sizeof(drawn.notes[0]), "%s %s %.240s", drawn.colour, kind, text);
}

static bool has(const char *wanted)
{
    for (size_t i = 0; i < drawn.count; i++) {
        if (strcmp(drawn.notes[i], wanted) == 0) {
            return true;
        }
    }
    return false;
}

static size_t count_of(const char *beginning)
{
    size_t count = 0;
    for (size_t i = 0; i < drawn.count; i++) {
        count += strncmp(drawn.notes[i], beginning, strlen(beginning)) == 0;
    }
    return count;
}

#define SURFACE ((cairo_surface_t *) (void *) &drawn.open)
#define CONTEXT ((cairo_t *) (void *) &drawn.count)

cairo_surface_t *cairo_svg_surface_create(const char *path, double width, double height)
{
    assert_true(width == 900 && height == 640);
    (void) snprintf(drawn.file, sizeof(drawn.file), "%s", path);
    drawn.open++;
    return SURFACE;
}

cairo_surface_t *cairo_image_surface_create(cairo_format_t format, int width, int height)
{
    assert_true(format == CAIRO_FORMAT_RGB24 && width == 900 && height == 640);
    drawn.open++;
    return SURFACE;
}

cairo_status_t cairo_surface_write_to_png(cairo_surface_t *surface, const char *path)
{
    assert_ptr_equal(surface, SURFACE);
    (void) snprintf(drawn.png, sizeof(drawn.png), "%s", path);
    return drawn.of_png;
}

cairo_t *cairo_create(cairo_surface_t *surface)
{
    assert_ptr_equal(surface, SURFACE);
    drawn.open++;
    return CONTEXT;
}

void cairo_destroy(cairo_t *cr)
{
    assert_ptr_equal(cr, CONTEXT);
    drawn.open--;
}

void cairo_surface_destroy(cairo_surface_t *surface)
{
    assert_ptr_equal(surface, SURFACE);
    drawn.open--;
}

void cairo_surface_finish(cairo_surface_t *surface)
{
    assert_ptr_equal(surface, SURFACE);
}

cairo_status_t cairo_status(cairo_t *cr)
{
    (void) cr;
    return drawn.of_drawing;
}

cairo_status_t cairo_surface_status(cairo_surface_t *surface)
{
    (void) surface;
    return drawn.of_surface;
}

const char *cairo_status_to_string(cairo_status_t status)
{
    return status == CAIRO_STATUS_WRITE_ERROR ? "no room" : "another";
}

void cairo_set_source_rgb(cairo_t *cr, double red, double green, double blue)
{
    (void) cr;
    (void) snprintf(drawn.colour, sizeof(drawn.colour), "%g,%g,%g", red, green, blue);
}

void cairo_paint(cairo_t *cr)
{
    (void) cr;
    note("paint", "");
}

void cairo_select_font_face(cairo_t *cr, const char *family, cairo_font_slant_t slant, cairo_font_weight_t weight)
{
    (void) cr;
    assert_string_equal(family, "sans-serif");
    assert_true(slant == CAIRO_FONT_SLANT_NORMAL && weight == CAIRO_FONT_WEIGHT_NORMAL);
}

void cairo_set_font_size(cairo_t *cr, double size)
{
    (void) cr;
    assert_true(size == 12);
}

void cairo_set_line_width(cairo_t *cr, double width)
{
    (void) cr;
    assert_true(width == 1.5);
}

/* Each letter is ten points wide. */
void cairo_text_extents(cairo_t *cr, const char *text, cairo_text_extents_t *extents)
{
    (void) cr;
    *extents = (cairo_text_extents_t){.x_advance = 10.0 * (double) strlen(text)};
}

void cairo_show_text(cairo_t *cr, const char *text)
{
    char place[160];
    (void) cr;
    assert_true(drawn.has_point);
    (void) snprintf(place, sizeof(place), "%.6g %.6g %s", drawn.x, drawn.y, text);
    note("text", place);
}

void cairo_new_path(cairo_t *cr)
{
    (void) cr;
    drawn.path[0] = '\0';
    drawn.has_point = false;
}

void cairo_move_to(cairo_t *cr, double x, double y)
{
    (void) cr;
    drawn.x = x;
    drawn.y = y;
    drawn.has_point = true;
    (void) snprintf(drawn.path, sizeof(drawn.path), "%.6g,%.6g", x, y);
}

void cairo_line_to(cairo_t *cr, double x, double y)
{
    (void) cr;
    const size_t length = drawn.has_point ? strlen(drawn.path) : 0;
    (void) snprintf(drawn.path + length, sizeof(drawn.path) - length, "%s%.6g,%.6g", length != 0 ? " " : "", x, y);
    drawn.has_point = true;
}

void cairo_stroke(cairo_t *cr)
{
    note("line", drawn.path);
    cairo_new_path(cr);
}

void cairo_rectangle(cairo_t *cr, double x, double y, double width, double height)
{
    (void) cr;
    (void) snprintf(drawn.path, sizeof(drawn.path), "%.6g,%.6g %.6gx%.6g", x, y, width, height);
}

void cairo_fill(cairo_t *cr)
{
    note("bar", drawn.path);
    cairo_new_path(cr);
}

void output_fault_of(struct output *out, const char *name, const char *text)
{
    (void) out;
    (void) snprintf(drawn.fault, sizeof(drawn.fault), "%s: %s", name, text);
}

void output_fault(struct output *out, const char *text)
{
    (void) out;
    (void) snprintf(drawn.fault, sizeof(drawn.fault), "%s", text);
}

char *report_time(char out[REPORT_TIME_SIZE], uint64_t time_ms)
{
    (void) snprintf(out, REPORT_TIME_SIZE, "%llu", (unsigned long long) time_ms);
    return out;
}

static struct replay replay;
static struct client clients[40];
static const struct report report = {.replay = &replay};
static struct output output;

/* Four steps of two seconds; and keys by their busiest second: one of 1, two of 2, four of 3, three of 9, one of 2^30.
 */
static int begin(void **state)
{
    (void) state;
    static const uint32_t peaks[] = {1, 2, 2, 3, 4, 3, 4, 9, 12, 16, UINT32_C(1) << 30};
    static const struct step steps[] = {{20, 0, 4}, {80, 40, 20}, {0, 0, 0}, {40, 10, 40}};
    memset(&drawn, 0, sizeof(drawn));
    memset(&replay, 0, sizeof(replay));
    replay.side_count = 2;
    replay.timeline = (struct timeline){.step_s = 2, .first_s = 1000, .count = 4};
    memcpy(replay.timeline.steps, steps, sizeof(steps));
    replay.clients = (struct clients){.all = clients, .count = 10, .threshold = 500};
    for (size_t i = 0; i < 11; i++) {
        clients[i] = (struct client){.hash = 500, .peak = peaks[i]};
    }
    return 0;
}

static void test_each_curve_each_mark_and_each_text_is_in_its_place(void **state)
{
    (void) state;
    assert_int_equal(plot_write(&output, &report, "a.svg"), CODE_GOOD);
    assert_int_equal(drawn.open, 0);
    assert_string_equal(drawn.file, "a.svg");
    assert_string_equal(drawn.png, "");
    assert_string_equal(drawn.notes[0], "1,1,1 paint ");
    /* 40 requests a second at the most: marks at 0, 10 ... 40, which are 55 points apart. */
    for (int i = 0; i <= 4; i++) {
        char line[160], text[160];
        (void) snprintf(line, sizeof(line), "0.85,0.85,0.85 line 80,%d 870,%d", 270 - 55 * i, 270 - 55 * i);
        (void) snprintf(text, sizeof(text), "0.2,0.2,0.2 text %d %d %d", i == 0 ? 64 : 54, 274 - 55 * i, 10 * i);
        assert_true(has(line) && has(text));
    }
    assert_true(has("0.2,0.2,0.2 text 80 38 requests a second"));
    /* Each of the four steps is 197.5 points wide. */
    assert_true(has("0.6,0.6,0.6 line 80,215 277.5,215 277.5,50 475,50 475,270 672.5,270 672.5,160 870,160"));
    assert_true(has("0.1,0.45,0.75 line 80,215 277.5,215 277.5,160 475,160 475,270 672.5,270 672.5,187.5 870,187.5"));
    assert_true(has("0.85,0.25,0.15 line 80,270 277.5,270 277.5,160 475,160 475,270 672.5,270 672.5,242.5 870,242.5"));
    assert_true(has("0.9,0.6,0.1 line 80,259 277.5,259 277.5,215 475,215 475,270 672.5,270 672.5,160 870,160"));
    static const struct {
        const char *colour, *text;
        int at;
    } legends[] = {{"0.6,0.6,0.6", "offered", 500},
                   {"0.1,0.45,0.75", "admitted", 580},
                   {"0.85,0.25,0.15", "denied", 670},
                   {"0.9,0.6,0.1", "denied by the old", 750}};
    for (size_t i = 0; i < 4; i++) {
        char bar[160], text[160];
        (void) snprintf(bar, sizeof(bar), "%s bar %d,29 10x10", legends[i].colour, legends[i].at);
        (void) snprintf(text, sizeof(text), "0.2,0.2,0.2 text %d 38 %s", legends[i].at + 14, legends[i].text);
        assert_true(has(bar) && has(text));
    }
    /* Times at the quarters of 8 seconds: the first begins at the left end, the last ends at the right one. */
    assert_true(has("0.2,0.2,0.2 text 80 288 1000000"));
    assert_true(has("0.2,0.2,0.2 text 260 288 1002000"));
    assert_true(has("0.2,0.2,0.2 text 440 288 1004000"));
    assert_true(has("0.2,0.2,0.2 text 620 288 1006000"));
    assert_true(has("0.2,0.2,0.2 text 800 288 1008000"));
    /* Bars of 1, 2, 3-4, 5-8 and 9-16: 158 points each; four keys at the most. */
    assert_true(has("0.2,0.2,0.2 text 80 358 keys, by their requests in their busiest second"));
    static const struct {
        const char *text;
        int height;
        double at;
    } bars[] = {{"1", 55, 154}, {"2", 110, 312}, {"3-4", 220, 460}, {"5-8", 0, 618}, {"9-16", 165, 771}};
    for (int i = 0; i < 5; i++) {
        char bar[160], text[160];
        (void) snprintf(bar, sizeof(bar), "0.1,0.45,0.75 bar %d,%d 154x%d", LEFT + 158 * i + 2,
                        LOWER + HEIGHT - bars[i].height, bars[i].height);
        (void) snprintf(text, sizeof(text), "0.2,0.2,0.2 text %.6g 608 %s", bars[i].at, bars[i].text);
        assert_true(has(bar) && has(text));
        (void) snprintf(text, sizeof(text), "0.2,0.2,0.2 text 64 %d %d", LOWER + HEIGHT + 4 - 55 * i, i);
        assert_true(has(text));
    }
    assert_int_equal(count_of("0.85,0.85,0.85 line"), 10);
    assert_int_equal(count_of("0.2,0.2,0.2 text"), 10 + 2 + 4 + 5 + 5);
    assert_int_equal(drawn.count, 1 + 10 + 26 + 4 + 4 + 5);
}

static void test_the_last_bar_has_all_above_it_and_keys_outside_of_the_sample_are_left_out(void **state)
{
    (void) state;
    replay.clients.count = 11;
    clients[7].hash = clients[8].hash = clients[9].hash = 501;
    replay.side_count = 1;
    assert_int_equal(plot_write(&output, &report, "b.png"), CODE_GOOD);
    assert_string_equal(drawn.png, "b.png");
    assert_string_equal(drawn.file, "");
    assert_int_equal(count_of("0.9,0.6,0.1"), 0); /* nothing is compared */
    assert_int_equal(count_of("0.1,0.45,0.75 bar"), 1 + 24);
    char text[160];
    (void) snprintf(text, sizeof(text), "0.2,0.2,0.2 text %.6g 608 4194305-8388608", LEFT + WIDTH / 24.0 * 23.5 - 75);
    assert_true(has(text));
    (void) snprintf(text, sizeof(text), "0.1,0.45,0.75 bar %.6g,%d %.6gx%d", LEFT + WIDTH / 24.0 * 23 + 2,
                    LOWER + HEIGHT - 55, WIDTH / 24.0 - 4, 55);
    assert_true(has(text));
    (void) snprintf(text, sizeof(text), "0.1,0.45,0.75 bar %.6g,%d %.6gx0", LEFT + WIDTH / 24.0 * 4 + 2, LOWER + HEIGHT,
                    WIDTH / 24.0 - 4);
    assert_true(has(text));
    /* Of no keys an axis of 0 and 1 is left. */
    (void) begin(state);
    replay.clients.count = 0;
    assert_int_equal(plot_write(&output, &report, "b.png"), CODE_GOOD);
    assert_true(has("0.1,0.45,0.75 bar 82,590 786x0"));
    assert_true(has("0.85,0.85,0.85 line 80,370 870,370"));
}

static void test_marks_are_round_numbers_and_at_most_six(void **state)
{
    (void) state;
    static const struct {
        uint64_t most;
        const char *step, *last;
    } rows[] = {{1, "0.2", "1"},       {5, "1", "5"},
                {6, "2", "6"},         {7, "2", "6"},
                {10, "2", "10"},       {11, "5", "10"},
                {25, "5", "25"},       {26, "10", "20"},
                {50, "10", "50"},      {51, "20", "40"},
                {100, "20", "100"},    {101, "50", "100"},
                {1200, "500", "1000"}, {2000000, "500000", "2e+06"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[160];
        bool has_step = false, has_last = false;
        (void) begin(state);
        replay.timeline = (struct timeline){.step_s = 1, .first_s = 1000, .count = 1, .steps = {{rows[i].most, 0, 0}}};
        assert_int_equal(plot_write(&output, &report, "a.svg"), CODE_GOOD);
        for (size_t n = 0; n < drawn.count; n++) {
            (void) snprintf(text, sizeof(text), " %s", rows[i].step);
            const size_t length = strlen(drawn.notes[n]);
            has_step = has_step || (length > strlen(text) && strcmp(drawn.notes[n] + length - strlen(text), text) == 0);
            (void) snprintf(text, sizeof(text), " %s", rows[i].last);
            has_last = has_last || (length > strlen(text) && strcmp(drawn.notes[n] + length - strlen(text), text) == 0);
        }
        assert_true(has_step && has_last);
        const size_t lower = 5; /* marks of the lower chart */
        const size_t marks = count_of("0.85,0.85,0.85 line") - lower;
        assert_int_equal(marks, (size_t) (atof(rows[i].last) / atof(rows[i].step) + 1.5));
        assert_true(marks <= 6);
    }
}

static void test_what_cannot_be_written_is_said(void **state)
{
    (void) state;
    static const struct {
        cairo_status_t drawing, png, surface;
        const char *path, *fault;
    } rows[] = {
        {CAIRO_STATUS_SUCCESS, CAIRO_STATUS_SUCCESS, CAIRO_STATUS_WRITE_ERROR, "d/a.svg", "d/a.svg: no room"},
        {CAIRO_STATUS_WRITE_ERROR, CAIRO_STATUS_SUCCESS, CAIRO_STATUS_NO_MEMORY, "a.png", "a.png: no room"},
        {CAIRO_STATUS_SUCCESS, CAIRO_STATUS_WRITE_ERROR, CAIRO_STATUS_NO_MEMORY, "a.png", "a.png: no room"},
        {CAIRO_STATUS_SUCCESS, CAIRO_STATUS_WRITE_ERROR, CAIRO_STATUS_SUCCESS, "a.svg", NULL},
    };
    assert_null(plot_lacks());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void) begin(state);
        drawn.of_drawing = rows[i].drawing;
        drawn.of_png = rows[i].png;
        drawn.of_surface = rows[i].surface;
        assert_int_equal(plot_write(&output, &report, rows[i].path), rows[i].fault != NULL ? CODE_OUTPUT : CODE_GOOD);
        assert_string_equal(drawn.fault, rows[i].fault != NULL ? rows[i].fault : "");
        assert_int_equal(drawn.open, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_each_curve_each_mark_and_each_text_is_in_its_place, begin),
        cmocka_unit_test_setup(test_the_last_bar_has_all_above_it_and_keys_outside_of_the_sample_are_left_out, begin),
        cmocka_unit_test(test_marks_are_round_numbers_and_at_most_six),
        cmocka_unit_test(test_what_cannot_be_written_is_said),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_plot", tests, NULL, NULL);
}
