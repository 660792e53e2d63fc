package fake

import "google.golang.org/protobuf/encoding/protowire"

// paddingField is the largest field number of protobuf. No message of CRI has it, so every decoder skips it.
const paddingField = protowire.MaxValidNumber

// Padding returns an encoded field that no message knows, of n bytes, or as few more as its own head needs. It is empty
// when n is not positive. Appended to an encoded message it makes that larger and changes nothing that it says.
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
