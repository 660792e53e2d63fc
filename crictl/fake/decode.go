package fake

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxScenarioBytes bounds the text of a scenario. The largest built-in one has 6 KB.
const maxScenarioBytes = 4 << 20

// decodeStrict reads a YAML or JSON document. Unknown and repeated keys are errors. Errors have one line and quote of
// the document nothing but names of fields: a file that was named by mistake may hold secrets.
func decodeStrict(data []byte, into any) error {
	if len(data) > maxScenarioBytes {
		return fmt.Errorf("%d bytes are too many: at most %d", len(data), maxScenarioBytes)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("the document is empty")
	}
	err := yaml.UnmarshalStrict(data, into)
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, known := range []string{
		`line \d+: key "[\w.-]{1,40}" already set in map`,
		`line \d+: (did not find|could not find|mapping values|found)[a-z ',-]*`,
		`unknown field "[\w.-]{1,40}"`,
		`cannot unmarshal [a-z]+ .*into Go struct field [\w.]+`,
		`"[\w.-]{1,20}" is not a duration such as 250ms or 1h30m`,
	} {
		if found := regexp.MustCompile(known).FindString(text); found != "" {
			return errors.New(found)
		}
	}
	return errors.New("it is not a YAML document with the fields of a scenario")
}
