package fake

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// digest hashes parts in order; a separator keeps ("a", "bc") and ("ab", "c") apart.
func digest(parts ...string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join(parts, "\x00")))
}

// objectID returns the 64 hexadecimal digits that identify a sandbox, container or image.
func objectID(parts ...string) string {
	sum := digest(parts...)
	return hex.EncodeToString(sum[:])
}

// podUID returns a UUID (version 4 by its form) that is the same in every run.
func podUID(parts ...string) string {
	sum := digest(parts...)
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// number returns an evenly spread number below n that depends on the parts only.
func number(n uint64, parts ...string) uint64 {
	sum := digest(parts...)
	return binary.BigEndian.Uint64(sum[:8]) % n
}

// podAddress returns the n-th address of the node's pod network, 10.244.0.0/16.
func podAddress(n int) string {
	return fmt.Sprintf("10.244.%d.%d", n/250%256, n%250+2)
}
