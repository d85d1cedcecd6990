/* SPDX-License-Identifier: MIT */
/* What may be opened beside a model, and what may not. */
#include "parsers/core/arena.h"
#include "parsers/core/input.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void make_tree(void)
{
	CHECK(mkdir("m", 0755) == 0 && mkdir("m/sub", 0755) == 0 && mkdir("m/sub/deep", 0755) == 0);
	put("m/model.onnx", "model");
	put("m/data.bin", "data");
	put("m/sub/deep/x", "deep");
	put("outside", "secret");
	CHECK(symlink("data.bin", "m/link") == 0 && symlink("../outside", "m/out") == 0 && symlink("sub", "m/subl") == 0);
	CHECK(symlink("..", "m/up") == 0 && symlink("/etc/passwd", "m/abs") == 0 && symlink("gone", "m/dangling") == 0);
	CHECK(link("m/data.bin", "m/hard") == 0 && mkfifo("m/fifo", 0600) == 0);
	/* the cache of a model hub */
	CHECK(mkdir("hub", 0755) == 0 && mkdir("hub/blobs", 0755) == 0 && mkdir("hub/snapshots", 0755) == 0);
	CHECK(mkdir("hub/snapshots/r", 0755) == 0 && mkdir("hub/snapshots/r/sub", 0755) == 0 && mkdir("other", 0755) == 0);
	put("hub/blobs/0a1b", "blob");
	put("other/0a1b", "secret");
	CHECK(symlink("../../blobs/0a1b", "hub/snapshots/r/good") == 0);
	CHECK(symlink("../../../blobs/0a1b", "hub/snapshots/r/sub/good") == 0);
	CHECK(symlink("../../../other/0a1b", "hub/snapshots/r/elsewhere") == 0);
	CHECK(symlink("../../blobs/../../outside", "hub/snapshots/r/dots") == 0);
	CHECK(symlink("../../../outside", "hub/blobs/0c") == 0 && symlink("../../blobs/0c", "hub/snapshots/r/twice") == 0);
	CHECK(symlink("../../blobs/0d", "hub/snapshots/r/gone") == 0);
}

static bool opens(const struct input *in, const char *name, unsigned flags, const char *text)
{
	struct source *s = NULL;
	char buf[16] = "";
	int r = input_companion(in, str_from(name), flags, &s, NULL);
	bool same = r == 0 && source_size(s) == strlen(text) && source_read(s, 0, buf, strlen(text), NULL) == 0 &&
		    strcmp(buf, text) == 0;

	source_unref(s);
	return same;
}

static bool refuses(const struct input *in, struct str name, unsigned flags, const char *why)
{
	struct source *s = (struct source *)1;
	struct error e = {0};
	int r = input_companion(in, name, flags, &s, &e);

	if (r < 0 && !s && strstr(e.text, why))
		return true;
	printf("'%.*s': %d %s\n", (int)name.len, name.ptr, r, e.text);
	return false;
}

static void companions(void)
{
	struct input in;
	struct error e = {0};
	char here[200], path[300];

	CHECK(input_open(&in, "m/model.onnx", &e) == 0 && in.src && !in.is_dir && str_is(in.base, "model.onnx"));
	CHECK(opens(&in, "data.bin", 0, "data") && opens(&in, "sub/deep/x", 0, "deep") && opens(&in, "./sub//deep/./x", 0, "deep"));
	CHECK(refuses(&in, STR("gone"), 0, "No such file") && refuses(&in, STR(""), 0, "no file name"));
	CHECK(refuses(&in, STR("../outside"), 0, "'..'") && refuses(&in, STR(".."), 0, "'..'"));
	CHECK(refuses(&in, STR("sub/../../outside"), 0, "'..'") && refuses(&in, STR("sub/.."), 0, "'..'"));
	CHECK(refuses(&in, STR("/etc/passwd"), 0, "absolute"));
	getcwd(here, sizeof(here));
	snprintf(path, sizeof(path), "%s/m/data.bin", here);
	CHECK(refuses(&in, str_from(path), 0, "absolute")); /* though it would be inside */
	CHECK(refuses(&in, STR("link"), 0, "symbolic link") && refuses(&in, STR("out"), 0, "symbolic link"));
	CHECK(refuses(&in, STR("subl/deep/x"), 0, "symbolic link") && refuses(&in, STR("up/outside"), 0, "symbolic link"));
	CHECK(refuses(&in, STR("abs"), 0, "symbolic link") && refuses(&in, STR("dangling"), 0, "symbolic link"));
	CHECK(refuses(&in, STR("sub"), 0, "regular file") && refuses(&in, STR("fifo"), 0, "regular file"));
	CHECK(refuses(&in, STR("data.bin\0.txt"), 0, "data.bin"));
	CHECK(opens(&in, "hard", 0, "data") && refuses(&in, STR("hard"), INPUT_NO_HARDLINKS, "2 hard links"));
	CHECK(opens(&in, "sub/deep/x", INPUT_NO_HARDLINKS, "deep"));
	CHECK(input_has(&in, "data.bin") && !input_has(&in, "sub") && !input_has(&in, "link") && !input_has(&in, "../outside"));
	input_close(&in);
}

static void hub(void)
{
	struct input in;

	CHECK(input_open(&in, "hub/snapshots/r/good", NULL) == 0 && in.src && source_size(in.src) == 4);
	CHECK(opens(&in, "good", 0, "blob") && opens(&in, "sub/good", 0, "blob"));
	CHECK(refuses(&in, STR("elsewhere"), 0, "symbolic link") && refuses(&in, STR("dots"), 0, "symbolic link"));
	CHECK(refuses(&in, STR("twice"), 0, "symbolic link") && refuses(&in, STR("gone"), 0, "symbolic link"));
	input_close(&in);
	/* the directory itself is the model */
	CHECK(input_open(&in, "hub/snapshots/r", NULL) == 0 && in.is_dir && opens(&in, "good", 0, "blob"));
	CHECK(refuses(&in, STR("elsewhere"), 0, "symbolic link"));
	input_close(&in);
}

static void what_is_named(void)
{
	struct input in;
	struct error e = {0};

	CHECK(input_open(&in, "m/", NULL) == 0 && in.is_dir && !in.src && str_is(in.base, "m"));
	CHECK(opens(&in, "data.bin", 0, "data"));
	input_close(&in);
	CHECK(input_open(&in, "m/ckpt-10", NULL) == 0 && !in.is_dir && !in.src && str_is(in.base, "ckpt-10")); /* a prefix */
	CHECK(opens(&in, "data.bin", 0, "data"));
	input_close(&in);
	CHECK(input_open(&in, "nowhere/ckpt-10", &e) == -ENOENT && strstr(e.text, "nowhere/ckpt-10"));
	error_clear(&e);
	CHECK(input_open(&in, "", &e) == -ENOENT && *e.text);
	error_clear(&e);
	CHECK(input_open(&in, "m/model.onnx/x", &e) == -ENOTDIR && *e.text);
	error_clear(&e);
	CHECK(input_open(&in, "m/fifo", &e) == -EINVAL && strstr(e.text, "regular"));
	CHECK(input_open(&in, "m/link", NULL) == 0 && in.src && source_size(in.src) == 4); /* the user may follow links */
	input_close(&in);
	input_close(&in); /* twice is no harm */
}

static void listing(void)
{
	struct arena *a = arena_new(1u << 20);
	struct input in;
	struct str *names;
	size_t n = 0;

	CHECK(input_open(&in, "m", NULL) == 0 && input_list(&in, STR(""), a, &names, &n, NULL) == 0 && n == 11);
	CHECK(n == 11 && str_is(names[0], "abs") && str_is(names[8], "sub/") && str_is(names[9], "subl")); /* sorted */
	CHECK(input_list(&in, STR("sub"), a, &names, &n, NULL) == 0 && n == 1 && str_is(names[0], "deep/"));
	CHECK(input_list(&in, STR("subl"), a, &names, &n, NULL) < 0 && n == 0 && input_list(&in, STR("up"), a, &names, &n, NULL) < 0);
	CHECK(input_list(&in, STR(".."), a, &names, &n, NULL) < 0 && input_list(&in, STR("/etc"), a, &names, &n, NULL) < 0);
	CHECK(input_list(&in, STR("sub/../.."), a, &names, &n, NULL) < 0 && input_list(&in, STR("gone"), a, &names, &n, NULL) < 0);
	input_close(&in);
	arena_free(a);
}

int main(void)
{
	char dir[] = "/tmp/wiamodel-input-XXXXXX", command[64];

	CHECK(mkdtemp(dir) && chdir(dir) == 0);
	make_tree();
	companions();
	hub();
	what_is_named();
	listing();
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK(chdir("/") == 0 && system(command) == 0);
	return unit_done("input");
}
