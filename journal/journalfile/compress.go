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
)

// unpacker holds the decoders, so that a million payloads need no allocation. The zero value is ready.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// payload returns the payload of a DATA object as it was logged, FIELD=value. What it returns is valid until the next
// call.
func (u *unpacker) payload(m *image, o object) ([]byte, error) {
	if cap(u.buf) > keepMax {
		u.buf = nil
	}
	b, err := m.raw(o), error(nil)
	switch o.flags {
	case objZSTD:
		b, err = u.decodeZSTD(u.buf[:0], b)
	case objLZ4:
		b, err = decodeLZ4(u.buf[:0], b)
	case objXZ:
		b, err = decodeXZ(u.buf[:0], b)
	default:
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking the object at %d: %w", o.off, err)
	}
	u.buf = b
	return b, nil
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

// decodeLZ4 unpacks systemd's form of LZ4: the unpacked size in 64 bits, then one raw block.
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
