package fault

import (
	"errors"
	"fmt"
	"slices"
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
	words, err := split(text)
	if err != nil {
		return fake.Fault{}, err
	}
	f := fake.Fault{RPC: words[0]}
	switch {
	case f.RPC == "":
		return fake.Fault{}, errors.New("the RPC is missing; it comes first")
	case strings.Contains(f.RPC, "="):
		return fake.Fault{}, fmt.Errorf("it begins with %q; the RPC comes first", f.RPC)
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, assigned := strings.Cut(word, "=")
		if seen[key] {
			return fake.Fault{}, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		if err := set(&f, key, value, assigned); err != nil {
			return fake.Fault{}, err
		}
	}
	return f, f.Validate()
}

// split cuts at the commas that are not in double quotes, and trims blanks.
func split(text string) ([]string, error) {
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
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	return append(words, strings.TrimSpace(text[from:])), nil
}

// A field is a word of the language and where its value goes: *bool, *string, *int or *fake.Duration.
type field struct {
	key   string
	value any
}

// fields returns the fields of a fault in the order in which Format writes them.
func fields(f *fake.Fault) []field {
	return []field{
		{"hang", &f.Hang},
		{"thaw", &f.Thaw},
		{"drop", &f.Drop},
		{"delay", &f.Delay},
		{"error", &f.Error},
		{"oversize", &f.Oversize},
		{"id", &f.Object.ID},
		{"namespace", &f.Object.Namespace},
		{"pod", &f.Object.Pod},
		{"container", &f.Object.Container},
		{"sandbox", &f.Object.Sandbox},
		{"from", &f.From},
		{"until", &f.Until},
		{"every", &f.Every},
		{"for", &f.For},
		{"first", &f.First},
		{"after", &f.After},
	}
}

// set sets the field that one word names.
func set(f *fake.Fault, key, value string, assigned bool) error {
	all := fields(f)
	i := slices.IndexFunc(all, func(f field) bool { return f.key == key })
	if i < 0 && assigned {
		return fmt.Errorf("there is no %q", key)
	} else if i < 0 {
		return fmt.Errorf("%q is none of hang, thaw, drop, sandbox, and has no value", key)
	}
	if flag, ok := all[i].value.(*bool); ok {
		*flag = true
		if assigned {
			return fmt.Errorf("%s takes no value", key)
		}
		return nil
	}
	if strings.HasPrefix(value, `"`) {
		unquoted, err := strconv.Unquote(value)
		if err != nil {
			return fmt.Errorf("%s: %s is not a quoted string", key, value)
		}
		value = unquoted
	}
	if value == "" {
		return fmt.Errorf("%s: the value is missing", key)
	}
	switch to := all[i].value.(type) {
	case *string:
		*to = value
	case *fake.Duration:
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%s: %q is not a duration such as 250ms or 1h30m", key, value)
		}
		*to = fake.Duration(d)
	case *int:
		n, err := number(value)
		if err != nil || n <= 0 || n > fake.MaxOversize {
			return fmt.Errorf("%s: %q is not a number from 1 to %d; sizes may end in KiB or MiB", key, value, fake.MaxOversize)
		}
		*to = n
	}
	return nil
}

// number reads 17825792, 17408KiB or 17MiB.
func number(value string) (int, error) {
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if digits, ok := strings.CutSuffix(value, suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 32)
			return int(n) * bytes, err
		}
	}
	return strconv.Atoi(value)
}

// Format writes a fault so that Parse reads it.
func Format(f fake.Fault) string {
	words := []string{f.RPC}
	for _, field := range fields(&f) {
		var value string
		switch v := field.value.(type) {
		case *bool:
			if *v {
				words = append(words, field.key)
			}
		case *string:
			value = *v
			if strings.Contains(value, ",") || value != strings.TrimSpace(value) || strconv.Quote(value) != `"`+value+`"` {
				value = strconv.Quote(value)
			}
		case *fake.Duration:
			if *v != 0 {
				value = v.String()
			}
		case *int:
			if *v != 0 {
				value = strconv.Itoa(*v)
			}
		}
		if value != "" {
			words = append(words, field.key+"="+value)
		}
	}
	return strings.Join(words, ",")
}
