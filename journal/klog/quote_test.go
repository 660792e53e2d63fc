package klog

import "testing"

func TestUnquote(t *testing.T) {
	tests := map[string]struct {
		s, rest string
		closed  bool
	}{
		``:                      {"", "", false},
		`abc"`:                  {"", `abc"`, false},
		`"`:                     {"", "", false},
		`""`:                    {"", "", true},
		`"a" b`:                 {"a", " b", true},
		`"a\"b" c`:              {`a"b`, " c", true},
		`"a\\" c`:               {`a\`, " c", true},
		`"a\\\"`:                {`a\"`, "", false},
		`"\a\b\f\n\r\t\v\/\'"`:  {"\a\b\f\n\r\t\v/'", "", true},
		`"\x1b[0m\u003c\u00e9"`: {"\x1b[0m<é", "", true},
		`"\ud83d\ude00"`:        {"😀", "", true},
		`"\ud83dx\ude00"`:       {"\ufffdx\ufffd", "", true},
		`"\xzz\u12\U0001"`:      {`\xzz\u12\U0001`, "", true},
		`"\q"`:                  {`\q`, "", true},
		`"a\`:                   {`a\`, "", false},
	}
	for in, want := range tests {
		s, rest, closed := Unquote([]byte(in))
		if s != want.s || string(rest) != want.rest || closed != want.closed {
			t.Errorf("Unquote(%s) = %q, %q, %v", in, s, rest, closed)
		}
	}
}
