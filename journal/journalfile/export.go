package journalfile

import (
	"bytes"
	"strconv"
)

// exported are the fields that Export writes (systemd.journal-fields(7)): those that say who wrote what when, of which
// unit and with which result. Command lines and what core dumps carry, environments among it, stay on the node.
var exported = map[string]bool{
	"MESSAGE": true, "MESSAGE_ID": true, "PRIORITY": true, "SYSLOG_FACILITY": true, "SYSLOG_IDENTIFIER": true,
	"SYSLOG_PID": true, "_PID": true, "_COMM": true, "_TRANSPORT": true, "_HOSTNAME": true,
	"_SYSTEMD_UNIT": true, "UNIT": true, "UNIT_RESULT": true, "INVOCATION_ID": true, "JOB_TYPE": true,
	"JOB_RESULT": true, "EXIT_CODE": true, "EXIT_STATUS": true, "N_RESTARTS": true,
	"_SOURCE_REALTIME_TIMESTAMP": true, "_SOURCE_MONOTONIC_TIMESTAMP": true, "_KERNEL_SUBSYSTEM": true,
	"_KERNEL_DEVICE": true,
}

// Export appends the entry to b in the journal's export format, with the fields that say who wrote what when. A value
// with line feeds is written as text too, each as #012, as rsyslog does: redaction changes bytes later, and would break
// a binary value, which bears its length, and all that follows. The Message of the entry is invalid from then on.
func (e *Entry) Export(b []byte) []byte {
	if e.file == nil { // a text without its entry
		return append(appendValue(append(b, "MESSAGE="...), e.Message), "\n\n"...)
	}
	m := e.file.img
	b = strconv.AppendUint(append(b, "__REALTIME_TIMESTAMP="...), e.Realtime, 10)
	b = strconv.AppendUint(append(b, "\n__MONOTONIC_TIMESTAMP="...), m.u64(e.obj.off+32), 10)
	b = append(b, "\n_BOOT_ID="...)
	for _, c := range m.boot(e.obj) {
		b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
	}
	b = append(b, '\n')
	for i := range m.items(e.obj) {
		o, ok := m.find(m.dataAt(e.obj, i), kindData)
		if !ok {
			continue
		}
		payload, err := e.file.unpack.payload(m, o)
		if err != nil {
			continue
		}
		name, value, _ := bytes.Cut(payload, []byte("="))
		if exported[string(name)] {
			b = append(appendValue(append(append(b, name...), '='), value), '\n')
		}
	}
	return append(b, '\n')
}

// appendValue appends a value in one line.
func appendValue(b, value []byte) []byte {
	for {
		line, rest, more := bytes.Cut(value, []byte("\n"))
		b = append(b, line...)
		if !more {
			return b
		}
		b, value = append(b, "#012"...), rest
	}
}
