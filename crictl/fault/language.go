package fault

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
)

// Parse reads one fault as it is written on a command line: the RPC, then what goes wrong, with which object and
// when, between commas. The RPC is a name or a pattern. A value with a comma in it is written in double quotes, as in
// Go.
//
//	ContainerStatus,hang,pod=web-*,from=10s,until=1m
//	RunPodSandbox,error="Unavailable: not now, later",first=3
//	ListContainers,oversize=17MiB
//
// The error has one line.
func Parse(text string) (fake.Fault, error) {
	words := split(text)
	f := fake.Fault{RPC: words[0]}
	if strings.Contains(f.RPC, "=") {
		return fake.Fault{}, fmt.Errorf("it begins with %q; the RPC comes first", f.RPC)
	}
	all := fields(&f)
	for _, word := range words[1:] {
		key, value, assigned := strings.Cut(word, "=")
		field := all.Lookup(key)
		if field == nil {
			return fake.Fault{}, fmt.Errorf("there is no %q", key)
		}
		if isFlag(field.Value) && !assigned {
			value = "true"
		}
		if strings.HasPrefix(value, `"`) {
			unquoted, err := strconv.Unquote(value)
			if err != nil {
				return fake.Fault{}, fmt.Errorf("%s: %s is not a quoted string", key, value)
			}
			value = unquoted
		}
		if value == "" {
			return fake.Fault{}, fmt.Errorf("%s: the value is missing", key)
		}
		if err := field.Value.Set(value); err != nil {
			return fake.Fault{}, fmt.Errorf("%s: %q is not a value such as %s", key, value, field.Usage)
		}
	}
	return f, f.Validate()
}

// split cuts at the commas that are not in double quotes, and trims blanks.
func split(text string) []string {
	var words []string
	quoted, from := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			words, from = append(words, strings.TrimSpace(text[from:i])), i+1
		}
	}
	return append(words, strings.TrimSpace(text[from:]))
}

// order is the order in which Format writes the fields.
var order = []string{
	"hang", "thaw", "drop", "delay", "error", "oversize", "id", "namespace", "pod", "container", "sandbox",
	"from", "until", "every", "for", "first", "after",
}

// fields returns the fields of a fault by their words, each with an example of its value.
func fields(f *fake.Fault) *flag.FlagSet {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	for name, to := range map[string]*bool{
		"hang": &f.Hang, "thaw": &f.Thaw, "drop": &f.Drop, "sandbox": &f.Object.Sandbox,
	} {
		fs.BoolVar(to, name, *to, "true")
	}
	for name, to := range map[string]*string{
		"error": &f.Error, "id": &f.Object.ID, "namespace": &f.Object.Namespace, "pod": &f.Object.Pod,
		"container": &f.Object.Container,
	} {
		fs.StringVar(to, name, *to, "web-*")
	}
	for name, to := range map[string]*fake.Duration{
		"delay": &f.Delay, "from": &f.From, "until": &f.Until, "every": &f.Every, "for": &f.For,
	} {
		fs.DurationVar((*time.Duration)(to), name, time.Duration(*to), "250ms or 1h30m")
	}
	fs.IntVar(&f.First, "first", f.First, "3")
	fs.IntVar(&f.After, "after", f.After, "3")
	fs.Var((*size)(&f.Oversize), "oversize", "17825792, 17408KiB or 17MiB")
	return fs
}

// A size is a number of bytes, which may be written as 17408KiB or 17MiB.
type size int

// String writes the size in bytes.
func (s *size) String() string { return strconv.Itoa(int(*s)) }

// Set reads the size.
func (s *size) Set(text string) error {
	factor := 1
	if digits, ok := strings.CutSuffix(text, "MiB"); ok {
		text, factor = digits, 1<<20
	} else if digits, ok := strings.CutSuffix(text, "KiB"); ok {
		text, factor = digits, 1<<10
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if n <= 0 {
		err = errors.New("not a positive number")
	}
	*s = size(int(n) * factor)
	return err
}

// Format writes a fault so that Parse reads it.
func Format(f fake.Fault) string {
	words := []string{f.RPC}
	all, zero := fields(&f), fields(&fake.Fault{})
	for _, key := range order {
		value := all.Lookup(key).Value
		text := value.String()
		if text == zero.Lookup(key).Value.String() {
			continue
		}
		if isFlag(value) {
			words = append(words, key)
			continue
		}
		if strings.Contains(text, ",") || text != strings.TrimSpace(text) || strconv.Quote(text) != `"`+text+`"` {
			text = strconv.Quote(text)
		}
		words = append(words, key+"="+text)
	}
	return strings.Join(words, ",")
}

// isFlag reports whether a field has no value in the language.
func isFlag(value flag.Value) bool {
	b, ok := value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
