package journalfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"

	"github.com/kdiag/kdiag/internal/testkit"
)

// builder writes journal files as journald lays them out, in every mode. systemd 252 itself only writes ZSTD.
// TestEndToEndJournalctl compares its files with journalctl's reading of them.
type builder struct {
	b       []byte
	compact bool
	pack    byte // compression flag of objects of 512 bytes and more
	data    map[string]uint64
	tails   map[uint64][2]uint64
	seqnum  uint64
	lines   []line // with a message, as they were written
}

const builderBuckets = 7

func newBuilder(compact, keyed bool, pack byte) *builder {
	const headerBytes = 272
	w := &builder{
		b: make([]byte, headerBytes), compact: compact, pack: pack,
		data: map[string]uint64{}, tails: map[uint64][2]uint64{},
	}
	copy(w.b, "LPKSHHRH")
	flags := uint32(map[byte]uint32{0: 0, objXZ: flagXZ, objLZ4: flagLZ4, objZSTD: flagZSTD}[pack])
	if compact {
		flags |= flagCompact
	}
	if keyed {
		flags |= flagKeyed
	}
	binary.LittleEndian.PutUint32(w.b[12:], flags)
	w.b[16] = byte(online)
	for i := range 16 {
		w.b[24+i], w.b[40+i], w.b[72+i] = byte(i+1), byte(i+0x21), byte(i+0x41)
	}
	w.put(88, headerBytes)
	for i, kind := range []byte{kindDataTable, kindFieldTable} {
		o := w.object(kind, 0, make([]byte, 16*builderBuckets))
		w.put(uint64(104+16*i), o+16)
		w.put(uint64(112+16*i), 16*builderBuckets)
	}
	return w
}

func (w *builder) put(off, v uint64)     { binary.LittleEndian.PutUint64(w.b[off:], v) }
func (w *builder) get(off uint64) uint64 { return binary.LittleEndian.Uint64(w.b[off:]) }
func (w *builder) add(off uint64)        { w.put(off, w.get(off)+1) }

// object appends an object and returns its offset.
func (w *builder) object(kind, flags byte, body []byte) uint64 {
	off := uint64(len(w.b))
	head := make([]byte, headSize)
	head[0], head[1] = kind, flags
	binary.LittleEndian.PutUint64(head[8:], uint64(headSize+len(body)))
	w.b = append(append(w.b, head...), body...)
	w.b = append(w.b, make([]byte, align8(uint64(len(w.b)))-uint64(len(w.b)))...)
	w.put(136, off)
	w.add(144)
	w.put(96, uint64(len(w.b))-w.get(88))
	return off
}

// value returns the DATA object of FIELD=value, new if it was not there.
func (w *builder) value(text string) uint64 {
	if off, ok := w.data[text]; ok {
		return off
	}
	payload, flag := []byte(text), byte(0)
	if len(text) >= 512 && w.pack != 0 {
		payload, flag = packed([]byte(text), w.pack), w.pack
	}
	head := make([]byte, 48)
	if w.compact {
		head = make([]byte, 56)
	}
	off := w.object(kindData, flag, append(head, payload...))
	w.data[text] = off
	w.add(208)
	return off
}

// packed returns b as journald packs it.
func packed(b []byte, flag byte) []byte {
	var out bytes.Buffer
	var err error
	switch flag {
	case objZSTD:
		var enc *zstd.Encoder
		enc, err = zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(zstd.MinWindowSize), zstd.WithEncoderLevel(zstd.SpeedFastest))
		out.Write(enc.EncodeAll(b, nil))
	case objLZ4:
		block := make([]byte, lz4.CompressBlockBound(len(b)))
		var n int
		n, err = lz4.CompressBlock(b, block, nil)
		out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), block[:n]...))
	case objXZ:
		var w *xz.Writer
		conf := xz.WriterConfig{DictCap: 1 << 12, BufSize: 1 << 12, CheckSum: xz.None, NoCheckSum: true}
		w, err = conf.NewWriter(&out)
		if err == nil {
			_, err = w.Write(b)
			err = errors.Join(err, w.Close())
		}
	}
	if err != nil {
		panic(err)
	}
	return out.Bytes()
}

// link appends an entry to the list whose first array is at the pointer.
func (w *builder) link(pointer, entry uint64) {
	t, ok := w.tails[pointer] // array, used places
	ref := uint64(8)
	if w.compact {
		ref = 4
	}
	if !ok || t[1] == (w.get(t[0]+8)-arrayItemsAt)/ref {
		places := max(4, 2*t[1])
		array := w.object(kindArray, 0, make([]byte, 8+places*ref))
		w.add(232)
		if ok {
			w.put(t[0]+16, array)
		} else {
			w.put(pointer, array)
		}
		t = [2]uint64{array, 0}
	}
	at := t[0] + arrayItemsAt + t[1]*ref
	if w.compact {
		binary.LittleEndian.PutUint32(w.b[at:], uint32(entry))
	} else {
		w.put(at, entry)
	}
	t[1]++
	w.tails[pointer] = t
}

// entry appends an entry at a time, in microseconds, of a boot, with fields in the form FIELD=value.
func (w *builder) entry(realtime uint64, boot byte, fields ...string) {
	w.seqnum++
	body := make([]byte, 48)
	le := binary.LittleEndian
	le.PutUint64(body, w.seqnum)
	le.PutUint64(body[8:], realtime)
	le.PutUint64(body[16:], realtime-1e15)
	body[24], body[39] = boot, 1
	le.PutUint64(body[40:], w.seqnum*0x9E3779B97F4A7C15)
	fields = append(fields, fmt.Sprintf("_BOOT_ID=%02x%s01", boot, strings.Repeat("0", 28)))
	var offs []uint64
	for _, f := range fields {
		off := w.value(f)
		offs = append(offs, off)
		if w.compact {
			body = le.AppendUint32(body, uint32(off))
		} else {
			body = le.AppendUint64(le.AppendUint64(body, off), 0)
		}
	}
	e := w.object(kindEntry, 0, body)
	w.link(176, e)
	for _, off := range offs {
		if w.get(off+40) == 0 {
			w.put(off+40, e)
		} else {
			w.link(off+48, e)
		}
		w.add(off + 56)
	}
	w.add(152)
	if w.seqnum == 1 {
		w.put(168, 1)
		w.put(184, realtime)
	}
	w.put(160, w.seqnum)
	w.put(192, realtime)
	w.put(200, realtime-1e15)
	copy(w.b[56:72], w.b[e+40:e+56])
	l := line{Realtime: realtime}
	for _, f := range fields {
		switch name, value, _ := strings.Cut(f, "="); name {
		case "_SYSTEMD_UNIT":
			l.Unit = value
		case "MESSAGE":
			l.Message = value
			w.lines = append(w.lines, l)
		}
	}
}

func (w *builder) save(t testing.TB, path string) {
	t.Helper()
	must(t, os.WriteFile(path, w.b, 0o644))
}

// t0 is the time of the first entry of built files: 2026-03-05 00:00:00 UTC.
const t0 = 1772668800_000000

// sample is a file with short, long, binary, repeated and empty fields, two boots and texts that repeat.
func sample(compact, keyed bool, pack byte, entries int) *builder {
	w := newBuilder(compact, keyed, pack)
	for i := range entries {
		boot := byte(0xA1)
		if i >= entries/2 {
			boot = 0xA2
		}
		fields := []string{
			"_SYSTEMD_UNIT=" + []string{"kubelet.service", "containerd.service"}[i%2],
			fmt.Sprintf("MESSAGE=E0305 00:00:%02d.000000    1432 kubelet.go:2456] record %d", i%60, i),
		}
		switch i % 10 {
		case 2:
			fields[1] = "MESSAGE=PLEG is not healthy: the same text again"
		case 4:
			fields[1] = fmt.Sprintf("MESSAGE=%s PLEG is not healthy: long %d", strings.Repeat("errCauses ", 80), i)
		case 7:
			fields[1] = fmt.Sprintf("MESSAGE=two\nlines %d", i)
		case 8:
			fields[1] = "NO_MESSAGE=1"
		}
		w.entry(t0+uint64(i)*1e6, boot, fields...)
	}
	return w
}

// modes are a file in every layout that a file may have, by a name.
func modes(entries int) map[string]*builder {
	all := map[string]*builder{}
	for _, compact := range []bool{false, true} {
		for pack, name := range map[byte]string{0: "none", objXZ: "xz", objLZ4: "lz4", objZSTD: "zstd"} {
			all[fmt.Sprintf("compact=%v/%s", compact, name)] = sample(compact, pack&1 == 0, pack, entries)
		}
	}
	return all
}

var must = testkit.Must

func (w *builder) log(i int) {
	w.entry(t0+uint64(i)*1e6, 1, fmt.Sprintf("MESSAGE=record %d", i), "_SYSTEMD_UNIT=kubelet.service")
}
