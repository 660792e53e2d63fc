package fake

import "google.golang.org/protobuf/encoding/protowire"

// paddingField is the largest field number of protobuf. No message of CRI has it, so every decoder skips it.
const paddingField = protowire.MaxValidNumber

// Padding returns an encoded unknown field of n bytes, or of a few more if its header needs them. It is empty when n
// is not positive. Appended to an encoded message it changes the size and not the content.
func Padding(n int) []byte {
	if n <= 0 {
		return nil
	}
	head := protowire.AppendTag(nil, paddingField, protowire.BytesType)
	inside := max(0, n-len(head)-protowire.SizeVarint(uint64(n)))
	if len(head)+protowire.SizeBytes(inside) < n {
		inside++ // the length's own length shrank with it
	}
	return append(protowire.AppendVarint(head, uint64(inside)), make([]byte, inside)...)
}
