package stacks

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

//go:embed tables.yaml
var tablesYAML []byte

// tables returns the rules of tables.yaml; its comments explain them.
var tables = sync.OnceValue(func() *allTables {
	t := &allTables{}
	if err := yaml.UnmarshalStrict(tablesYAML, t); err != nil {
		panic("tables.yaml: " + err.Error()) // it is a part of the program
	}
	return t
})

type allTables struct {
	Locks, Idle, Loops []string
	Waits              []*waitRule
	Holds              []*holdRule
	Pictures           []*Picture
}

type waitRule struct {
	Word, Text string
	Lower      bool // the method in the text
	All        []names
}

type holdRule struct {
	Object, Word string
	Same, Shared bool
	Waits, Holds names
}

// names are short names of functions; a final * stands for any end.
type names []string

// UnmarshalJSON reads a string of names with | between them.
func (n *names) UnmarshalJSON(b []byte) error {
	var all string
	err := json.Unmarshal(b, &all)
	*n = strings.Split(all, "|")
	return err
}

// A function is one of a stack, by its name.
type function struct {
	short  string // container.(*statusStorage).Get.func1
	base   string // without the compiler's endings for closures
	std    bool   // of Go's library
	method bool   // with a pointer receiver: its first argument is an address
	lock   bool   // it waits for a lock, its receiver
}

func newFunction(name string) *function {
	f := &function{short: Short(name)}
	f.base = closure.ReplaceAllString(f.short, "")
	first, _, path := strings.Cut(name, "/")
	if !path { // net.(*conn).Read, main.main
		first, _, _ = strings.Cut(name, ".")
	}
	f.std = !strings.Contains(first, ".") && first != "main"
	f.method = strings.Contains(f.base, ".(*")
	f.lock = f.is(tables().Locks)
	return f
}

// is reports whether the function has one of the names.
func (f *function) is(any names) bool {
	return slices.ContainsFunc(any, func(name string) bool {
		prefix, open := strings.CutSuffix(name, "*")
		return name == f.base || open && strings.HasPrefix(f.base, prefix)
	})
}

// has reports whether a function with one of the names is in the stack.
func (p *place) has(any names) bool {
	return slices.ContainsFunc(p.fns, func(f *function) bool { return f.is(any) })
}

func (p *place) hasAll(all []names) bool {
	return !slices.ContainsFunc(all, func(any names) bool { return !p.has(any) })
}

// findWait sets what a goroutine at the place waits for, as far as the functions of its stack show it.
func (p *place) findWait() {
	for _, r := range tables().Waits {
		if !p.hasAll(r.All) {
			continue
		}
		method := ""
		for _, f := range p.fns {
			if f.is(r.All[len(r.All)-1]) {
				method = f.base[strings.LastIndexByte(f.base, '.')+1:]
			}
		}
		if r.Lower {
			method = strings.ToLower(method)
		}
		p.word, p.on = r.Word, strings.Replace(r.Text, "%s", method, 1)
		return
	}
}

// Short returns the name of a function without its import path: container.(*statusStorage).Get.
func Short(fn string) string {
	end := len(fn)
	if i := strings.IndexAny(fn, "(["); i >= 0 {
		end = i // a path behind it belongs to a type argument
	}
	return fn[strings.LastIndexByte(fn[:end], '/')+1:]
}

// closure matches the compiler's endings of the names of closures and wrappers, and type arguments.
var closure = lazyregexp.New(`(\.(func|gowrap|deferwrap)|-range)[0-9].*$|-fm$|\[\.\.\.\]`)
