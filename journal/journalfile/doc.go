// Package journalfile reads the files of systemd-journald: in pure Go, through a memory map, without libsystemd.
//
// A journal file is a header and a heap of objects, each aligned to 8 bytes. A DATA object is one "FIELD=value",
// stored once however often it is logged. An ENTRY object is one record: its times, its boot and the offsets of its
// DATA objects. Entry array objects list entries: one chain for the whole file, one for each DATA object. A FIELD
// object leads to all values of one field. systemd's journal-def.h defines the layout.
//
// [File.Search] does not read entry after entry and fetch 25 objects for each, as journalctl does. It walks the
// objects in file order, tests each distinct MESSAGE once, and looks up the entries of those that match. File order is
// the order of writing and needs no index, so the search continues behind damage and reports the unreadable parts.
//
// Seals are not verified (tags are skipped), and catalogs are not read.
package journalfile
