// Command lists writes what is compiled into kdiag from files that people write: list.go of checks/causes and
// catalogue.json of journal/signature. It must not import the first, which does not compile while its list is stale.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for name, text := range lists() {
		data, err := text(filepath.Dir(name))
		if err == nil {
			err = os.WriteFile(name, data, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "lists:", err)
			os.Exit(1)
		}
	}
}

// lists are the files to write, below the root of the repository, and what makes their text out of their folder.
func lists() map[string]func(dir string) ([]byte, error) {
	return map[string]func(string) ([]byte, error){
		"checks/causes/list.go":            causeList,
		"journal/signature/catalogue.json": signatures,
	}
}
