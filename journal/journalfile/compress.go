package journalfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

const (
	// unpackMax bounds one unpacked payload; a few KiB of zstd can hold gigabytes of zeros. journald itself takes no
	// field over 768 MiB, and no client's datagram over 64 MiB unless it comes through a file descriptor.
	unpackMax = 64 << 20
	// keepMax is the largest buffer that is kept for the next payload.
	keepMax = 1 << 20
)

var (
	errTooLarge = errors.New("unpacks to more than 64 MiB")
	errNotLZ4   = errors.New("no LZ4 block")
	errXZHead   = errors.New("no XZ stream, or one that asks for too much memory")
)

// unpacker holds the decoders, so that a million payloads need no allocation. The zero value is ready.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// payload returns the payload of a DATA object as it was logged, FIELD=value. What it returns is valid until the next
// call.
func (u *unpacker) payload(m *image, o object) ([]byte, error) {
	raw := m.raw(o)
	if o.flags == 0 {
		return raw, nil
	}
	if cap(u.buf) > keepMax {
		u.buf = nil
	}
	b, err := u.decode(u.buf[:0], raw, o.flags)
	if err != nil {
		return nil, fmt.Errorf("unpacking the object at %d: %w", o.off, err)
	}
	u.buf = b
	return b, nil
}

// fresh is payload into new memory, for values that are needed after the next call.
func (u *unpacker) fresh(m *image, o object) ([]byte, error) {
	if o.flags == 0 {
		return m.raw(o), nil
	}
	return u.decode(nil, m.raw(o), o.flags)
}

func (u *unpacker) decode(dst, raw []byte, flags byte) ([]byte, error) {
	switch flags {
	case objZSTD:
		return u.decodeZSTD(dst, raw)
	case objLZ4:
		return decodeLZ4(dst, raw)
	case objXZ:
		return decodeXZ(dst, raw)
	}
	return raw, nil
}

func (u *unpacker) decodeZSTD(dst, raw []byte) ([]byte, error) {
	if u.zstd == nil {
		var err error
		u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(unpackMax), zstd.WithDecoderMaxWindow(unpackMax))
		if err != nil {
			return nil, err
		}
	}
	return u.zstd.DecodeAll(raw, dst)
}

// decodeLZ4 unpacks what systemd calls LZ4: the unpacked size in 64 bits, then one raw block.
func decodeLZ4(dst, raw []byte) ([]byte, error) {
	if len(raw) <= 8 {
		return nil, errNotLZ4
	}
	size := binary.LittleEndian.Uint64(raw)
	if size > unpackMax {
		return nil, errTooLarge
	}
	// A byte of LZ4 stands for at most 255: a larger claim is false, and not worth its memory. No payload is empty.
	if size == 0 || size > 255*uint64(len(raw)) {
		return nil, errNotLZ4
	}
	if uint64(cap(dst)) < size {
		dst = make([]byte, size)
	}
	n, err := lz4.UncompressBlock(raw[8:], dst[:size])
	if err != nil {
		return nil, err
	}
	if uint64(n) != size {
		return nil, errNotLZ4
	}
	return dst[:n], nil
}

func decodeXZ(dst, raw []byte) ([]byte, error) {
	if !xzFits(raw) {
		return nil, errXZHead
	}
	r, err := xz.ReaderConfig{DictCap: 1 << 16, SingleStream: true}.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	w := bytes.NewBuffer(dst)
	n, err := io.Copy(w, io.LimitReader(r, unpackMax+1))
	if err != nil {
		return nil, err
	}
	if n > unpackMax {
		return nil, errTooLarge
	}
	return w.Bytes(), nil
}

// xzFits reports whether raw begins like an XZ stream whose first block has one LZMA2 filter with a dictionary of at
// most unpackMax. systemd writes a dictionary of 1 MiB; the decoder allocates what the stream asks for, up to 4 GiB.
func xzFits(raw []byte) bool {
	const block = 12 // behind the stream header
	if len(raw) < block+8 || !bytes.HasPrefix(raw, []byte("\xfd7zXZ\x00")) {
		return false
	}
	head := raw[block:]
	if n := (int(head[0]) + 1) * 4; head[0] == 0 || n > len(head) {
		return false
	} else {
		head = head[:n]
	}
	flags, rest := head[1], head[2:]
	if flags&3 != 0 { // more than one filter
		return false
	}
	for _, present := range []byte{flags & 0x40, flags & 0x80} { // packed and unpacked size, if they are there
		if present == 0 {
			continue
		}
		_, n := binary.Uvarint(rest)
		if n <= 0 {
			return false
		}
		rest = rest[n:]
	}
	const lzma2, props, dict64MiB = 0x21, 1, 28
	return len(rest) >= 3 && rest[0] == lzma2 && rest[1] == props && rest[2] <= dict64MiB
}

// packed returns the compression that the first bytes of a payload show, 0 if none. No field name begins like this,
// so it finds objects that lost their flag.
func packed(first uint64) byte {
	const zstdMagic, xzMagic = 0xFD2FB528, 0x5A587A37FD
	switch {
	case first&0xFFFFFFFF == zstdMagic:
		return objZSTD
	case first&0xFFFFFFFFFF == xzMagic:
		return objXZ
	}
	return 0
}
