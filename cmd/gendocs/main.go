// Command gendocs writes the pages that are made from the live command tree and the lists of causes, known bugs and
// signatures: docs/reference, docs/man, docs/schema, docs/causes.md, docs/advisories.md and docs/signatures.md.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendocs DIR")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}
