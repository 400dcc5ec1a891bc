package recordjson

import (
	"fmt"
	"strings"
)

// FieldError is one mistake in the input.
type FieldError struct {
	Field   string // "records[2].value", or in a single record "value"; "" is the input as a whole
	Message string // "is required"
}

// Error is the field and what is wrong with it.
func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// MostErrors is how many mistakes are reported at once.
const MostErrors = 100

// Errors is the cause of every fault that decoding returns; get it with errors.As. Of kind InvalidJSON
// it has one entry, of Validation 1 to MostErrors.
type Errors struct {
	Fields []FieldError
	More   int // mistakes that were found beyond MostErrors
	// Foreign says that a body is good JSON, but not the object that [Decoder.Body] reads: it has no list
	// of records. The only field says what is missing.
	Foreign bool
}

// Error is the mistakes as a sentence.
func (e *Errors) Error() string {
	var b strings.Builder
	for i, field := range e.Fields {
		if i > 0 {
			b.WriteString("; ")
		}
		if i == 3 && len(e.Fields) > 4 {
			fmt.Fprintf(&b, "and %d more", len(e.Fields)-3+e.More)
			return b.String()
		}
		b.WriteString(field.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "; and %d more", e.More)
	}
	return b.String()
}
