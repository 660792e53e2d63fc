package host

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// readUint reads a file that holds one number. The kernel's word for no limit, max, is 0.
func readUint(elem ...string) (uint64, error) {
	file := filepath.Join(elem...)
	b, err := readSmall(file)
	if err != nil {
		return 0, err
	}
	n, err := parseUint(b)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	return n, nil
}

func parseUint(b []byte) (uint64, error) {
	text := string(bytes.TrimSpace(b))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	return n, nil
}

// readSmall reads a file of at most 64 KiB, which nearly all are.
func readSmall(name string) ([]byte, error) { return readLimited(name, 64<<10) }

// readLimited returns up to limit bytes of a file of the kernel's.
func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// keyed finds the number after a key, as in the flat files of control groups:
//
//	nr_periods 10
//	nr_throttled 3
func keyed(b []byte, key string) (uint64, bool) {
	for line := range bytes.Lines(b) {
		value, ok := bytes.CutPrefix(line, []byte(key+" "))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		return n, err == nil
	}
	return 0, false
}
