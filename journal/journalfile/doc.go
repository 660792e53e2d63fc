// Package journalfile reads the files of systemd-journald: in pure Go, through a memory map, without libsystemd.
//
// A journal file is a header and a heap of objects, each aligned to 8 bytes. A DATA object is one "FIELD=value",
// stored once however often it is logged. An ENTRY object is one record: its times, its boot and the offsets of its
// DATA objects. Entry array objects list entries: one chain for the whole file, one for each DATA object. A FIELD
// object leads to all values of one field. The layout is that of systemd's journal-def.h.
//
// [File.Search] does not do what journalctl does, which takes entry after entry and fetches 25 objects for each. It
// walks the objects in file order, tests each distinct MESSAGE once, and asks only the hits for their entries. That
// is the order in which the file was written, and it needs no index: it goes on behind damage, and reports what it
// passed over.
//
// The package knows nothing of kubelets. It leaves out sealing (the tags are skipped, nothing is verified) and
// catalogs.
package journalfile
