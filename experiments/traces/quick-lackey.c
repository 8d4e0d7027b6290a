// SPDX-License-Identifier: GPL-2.0-or-later
// Derived from valgrind's lackey (lackey/lk_main.c, Copyright (C) 2002-2017 Nicholas Nethercote). Gleaner's own licence
// does not cover this file.
//
// A valgrind tool that writes the same text as lackey's --trace-mem=yes, ten to thirty times as fast: lackey makes a
// system call for every line, this fills a buffer. Only these experiments use it; `gleaner-lab cache record` needs no
// more than Debian's lackey. It is a program of its own, built by record.sh against the headers and libraries of
// Debian's package valgrind and run by valgrind; nothing of Gleaner's is linked with it.

#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

// The core's own; --child-silent-after-fork makes fd -1 in a forked child.
typedef struct { Int fd; } Sink;
extern Sink VG_(log_output_sink);

static HChar buffer[1 << 18];
static SizeT used;

static void flush(void)
{
    SizeT at = 0;
    while (at < used && VG_(log_output_sink).fd >= 0) {
        Int written = VG_(write)(VG_(log_output_sink).fd, buffer + at, used - at);
        if (written <= 0)
            break;
        at += written;
    }
    used = 0;
}

static void line(const HChar* head, Addr address, SizeT size)
{
    static const HChar digits[] = "0123456789abcdef";
    if (used + 64 > sizeof buffer)
        flush();
    HChar* to = buffer + used;
    for (Int at = 0; at < 3; at++)
        *to++ = head[at];
    Int shift = 28;
    while (shift < 60 && (address >> (shift + 4)) != 0)
        shift += 4;
    for (; shift >= 0; shift -= 4)
        *to++ = digits[(address >> shift) & 15];
    *to++ = ',';
    if (size < 10)
        *to++ = '0' + size;
    else
        to += VG_(sprintf)(to, "%lu", size);
    *to++ = '\n';
    used = to - buffer;
}

static VG_REGPARM(2) void fetched(Addr address, SizeT size) { line("I  ", address, size); }
static VG_REGPARM(2) void loaded(Addr address, SizeT size) { line(" L ", address, size); }
static VG_REGPARM(2) void stored(Addr address, SizeT size) { line(" S ", address, size); }

static void call(IRSB* out, const HChar* name, void* function, IRExpr* address, SizeT size, IRExpr* guard)
{
    IRExpr** arguments = mkIRExprVec_2(address, mkIRExpr_HWord(size));
    IRDirty* dirty = unsafeIRDirty_0_N(2, name, VG_(fnptr_to_fnentry)(function), arguments);
    if (guard)
        dirty->guard = guard;
    addStmtToIRSB(out, IRStmt_Dirty(dirty));
}

#define LOADED(address, size, guard) call(out, "loaded", loaded, address, size, guard)
#define STORED(address, size, guard) call(out, "stored", stored, address, size, guard)

static void statement(IRSB* out, IRTypeEnv* types, IRStmt* st)
{
    IRType type, loaded_as;
    SizeT size;
    switch (st->tag) {
    case Ist_IMark:
        call(out, "fetched", fetched, mkIRExpr_HWord((HWord)st->Ist.IMark.addr), st->Ist.IMark.len, NULL);
        break;
    case Ist_WrTmp:
        if (st->Ist.WrTmp.data->tag == Iex_Load)
            LOADED(st->Ist.WrTmp.data->Iex.Load.addr, sizeofIRType(st->Ist.WrTmp.data->Iex.Load.ty), NULL);
        break;
    case Ist_Store:
        STORED(st->Ist.Store.addr, sizeofIRType(typeOfIRExpr(types, st->Ist.Store.data)), NULL);
        break;
    case Ist_StoreG:
        type = typeOfIRExpr(types, st->Ist.StoreG.details->data);
        STORED(st->Ist.StoreG.details->addr, sizeofIRType(type), st->Ist.StoreG.details->guard);
        break;
    case Ist_LoadG:
        typeOfIRLoadGOp(st->Ist.LoadG.details->cvt, &type, &loaded_as);
        LOADED(st->Ist.LoadG.details->addr, sizeofIRType(loaded_as), st->Ist.LoadG.details->guard);
        break;
    case Ist_Dirty:
        if (st->Ist.Dirty.details->mFx == Ifx_Read || st->Ist.Dirty.details->mFx == Ifx_Modify)
            LOADED(st->Ist.Dirty.details->mAddr, st->Ist.Dirty.details->mSize, NULL);
        if (st->Ist.Dirty.details->mFx == Ifx_Write || st->Ist.Dirty.details->mFx == Ifx_Modify)
            STORED(st->Ist.Dirty.details->mAddr, st->Ist.Dirty.details->mSize, NULL);
        break;
    case Ist_CAS:
        size = sizeofIRType(typeOfIRExpr(types, st->Ist.CAS.details->dataLo));
        if (st->Ist.CAS.details->dataHi)
            size *= 2;
        LOADED(st->Ist.CAS.details->addr, size, NULL);
        STORED(st->Ist.CAS.details->addr, size, NULL);
        break;
    default:
        break;
    }
}

static IRSB* instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                         const VexGuestExtents* extents,
                        const VexArchInfo* host, IRType guest_word, IRType host_word)
{
    IRSB* out = deepCopyIRSBExceptStmts(in);
    // What comes before the first instruction is valgrind's own.
    Int at = 0;
    for (; at < in->stmts_used && in->stmts[at]->tag != Ist_IMark; at++)
        addStmtToIRSB(out, in->stmts[at]);
    for (; at < in->stmts_used; at++) {
        statement(out, in->tyenv, in->stmts[at]);
        addStmtToIRSB(out, in->stmts[at]);
    }
    return out;
}

// execve replaces this process without an end: its last lines must be out before.
static void before_call(ThreadId thread, UInt number, UWord* arguments, UInt count)
{
    if (number == __NR_execve)
        flush();
}
static void after_call(ThreadId thread, UInt number, UWord* arguments, UInt count, SysRes result) {}

static Bool option(const HChar* word)
{
    Bool yes;
    if VG_BOOL_CLO(word, "--trace-mem", yes) {}
    else if VG_BOOL_CLO(word, "--basic-counts", yes) {}
    else return False;
    return True;
}
static void usage(void) {}
static void begin(void) {}
static void end(Int status) { flush(); }

static void set_up(void)
{
    VG_(details_name)("quick-lackey");
    VG_(details_version)(NULL);
    VG_(details_description)("lackey's memory trace, buffered");
    VG_(details_copyright_author)("Derived from lackey, Copyright (C) 2002-2017, and GNU GPL'd, by Nicholas Nethercote.");
    VG_(details_bug_reports_to)("Gleaner, experiments/traces");
    VG_(basic_tool_funcs)(begin, instrument, end);
    VG_(needs_command_line_options)(option, usage, usage);
    VG_(needs_syscall_wrapper)(before_call, after_call);
}

VG_DETERMINE_INTERFACE_VERSION(set_up)
