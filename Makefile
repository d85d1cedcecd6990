# SPDX-License-Identifier: MIT
# wiamodel. `make`, `make unit`, `make install PREFIX= DESTDIR=`.
#   O=DIR            build folder (default obj)
#   CC=clang         compiler
#   SANITIZE=LIST    e.g. address,undefined or thread
#   WERROR=1         warnings are errors
#   V=1              show the commands
# A file config.mak, when present, can set any of these.
-include config.mak

O       ?= obj
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
MANDIR  ?= $(PREFIX)/share/man
# mount(8) and umount(8) look for their helpers here and nowhere else
HELPERDIR ?= /sbin
PROTOC_C ?= protoc-c
PKG_CONFIG ?= pkg-config
VERSION := 0.1.0

CFLAGS ?= -O2 -g
WARN    = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
          -Wmissing-prototypes -Wvla -Wformat=2
ALL_CFLAGS = -std=c17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DWIAMODEL_VERSION='"$(VERSION)"' \
          -I. -I$(O)/gen $(WARN) $(if $(WERROR),-Werror) -fno-strict-aliasing -fstack-protector-strong \
          $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer) $(CFLAGS)

PKGS    = hdf5 fuse3 libprotobuf-c jansson libseccomp zlib libcrypto
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS))
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))
# The shared HDF5 brings libcurl, Kerberos and LDAP along, 24 libraries for reading HDF5 from the network: they double the
# time to mount and have no place beside files that nobody vouches for. Its archive, where there is one, does not; what it
# calls of libcurl is in hdf5_offline.c.
HDF5_A  := $(wildcard $(patsubst -L%,%/libhdf5.a,$(filter -L%,$(PKG_LIBS))))
LIBS    = $(if $(HDF5_A),$(patsubst -lhdf5,$(HDF5_A) $(O)/libwiamodel.a -lsz -ldl,$(PKG_LIBS)),$(PKG_LIBS)) -lpthread -lm

Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

PROTOS := $(wildcard parsers/schema/*.proto)
GEN_C  := $(PROTOS:%.proto=$(O)/gen/%.pb-c.c)
GEN_H  := $(GEN_C:.c=.h)
SRCS   := $(wildcard parsers/*.c parsers/*/*.c views/*.c fs/*.c fs/cli/*.c)
MAIN   := fs/main.c
LIB_OBJS := $(patsubst %.c,$(O)/%.o,$(filter-out $(MAIN),$(SRCS))) $(GEN_C:.c=.o)
UNIT_C := $(wildcard tests/unit/*_test.c)
UNITS  := $(UNIT_C:%.c=$(O)/%)

.PHONY: all unit fuzz replay check bench install clean headers
.SECONDARY:
.DELETE_ON_ERROR:
all: $(O)/wiamodel $(O)/mount.wiamodel $(O)/umount.fuse.wiamodel

$(O)/wiamodel: $(O)/fs/main.o $(O)/libwiamodel.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(O)/mount.wiamodel $(O)/umount.fuse.wiamodel: $(O)/wiamodel
	$(Q)ln -sf wiamodel $@

$(O)/libwiamodel.a: $(LIB_OBJS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h: %.proto
	$(call say,PROTOC,$<)
	$(Q)mkdir -p $(dir $@) && $(PROTOC_C) --c_out=$(O)/gen $<

# generated code is not ours to warn about
$(O)/gen/%.o: $(O)/gen/%.c
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -w -c -o $@ $<

$(O)/%.o: %.c | $(GEN_H)
	$(call say,CC,$@)
	$(Q)mkdir -p $(dir $@) && $(CC) $(ALL_CFLAGS) $(PKG_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(O)/libwiamodel.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

unit: $(UNITS)
	$(Q)set -e; for t in $(UNITS); do $$t; done

# every header must compile alone
headers: $(GEN_H)
	$(Q)set -e; for h in $(wildcard parsers/*.h parsers/*/*.h views/*.h fs/*.h fs/cli/*.h); do \
		echo "#include \"$$h\"" | $(CC) $(ALL_CFLAGS) $(PKG_CFLAGS) -x c -fsyntax-only -; done

# libFuzzer harness, clang only: make fuzz CC=clang O=obj-fuzz SANITIZE=fuzzer-no-link,address,undefined
fuzz: $(O)/tests/fuzz/fuzz.o $(O)/libwiamodel.a
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $(O)/fuzz $^ $(LIBS)

# the same harness without libFuzzer, for any compiler: $(O)/replay FILE...
replay: tests/fuzz/fuzz.c $(O)/libwiamodel.a
	$(Q)$(CC) $(ALL_CFLAGS) -DREPLAY $(LDFLAGS) -o $(O)/replay $^ $(LIBS)

# golden models, command line, corpus
check: all unit replay
	$(Q)tests/golden/run $(O)/wiamodel
	$(Q)tests/cli/run $(O)/wiamodel
	$(Q)$(O)/replay $(wildcard tests/golden/*/good-*.* tests/golden/*/bad-*.* tests/fuzz/corpus/*/*)

# what scripts/bench/run measures with
bench: all $(O)/scripts/bench/generate $(O)/scripts/bench/null

$(O)/scripts/bench/%: $(O)/scripts/bench/%.o $(O)/libwiamodel.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

install: all
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(HELPERDIR) $(DESTDIR)$(MANDIR)/man1 \
		$(DESTDIR)$(MANDIR)/man5 $(DESTDIR)$(MANDIR)/man8
	install -m 755 $(O)/wiamodel $(DESTDIR)$(BINDIR)/wiamodel
	ln -sf wiamodel $(DESTDIR)$(BINDIR)/mount.wiamodel
	ln -sf $(BINDIR)/wiamodel $(DESTDIR)$(HELPERDIR)/mount.wiamodel
	ln -sf $(BINDIR)/wiamodel $(DESTDIR)$(HELPERDIR)/mount.fuse.wiamodel
	ln -sf $(BINDIR)/wiamodel $(DESTDIR)$(HELPERDIR)/umount.fuse.wiamodel
	for n in 1 5 8; do for f in man/*.$$n; do \
		[ -e "$$f" ] && install -m 644 $$f $(DESTDIR)$(MANDIR)/man$$n/ || :; done; done

clean:
	rm -rf $(O)

-include $(shell find $(O) -name '*.d' 2>/dev/null)
