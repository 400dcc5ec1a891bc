package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// readJSON reads a body of the control plane. Duplicate names and broken UTF-8 are refused, unknown
// members are ignored.
func (s *Server) readJSON(c *fiber.Ctx, into any) error {
	ctx := c.Context()
	if t := mediaType(ctx.Request.Header.ContentType()); t != "application/json" {
		return fault.Newf("gateway.JSON", fault.UnsupportedType, nil, "the content type is %s; it must be application/json, which curl sends with --json", quote(t))
	}
	b, err := s.readBody(ctx, controlBody)
	if err != nil {
		return err
	}
	defer b.release()
	return jsonError(jsonv2.Unmarshal(b.b, into))
}

// jsonError says what is wrong with a body, without the words of the program.
func jsonError(err error) error {
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return fault.Newf("gateway.JSON", fault.InvalidJSON, nil, "the body is not valid JSON at byte %d%s: %w",
			syntax.ByteOffset, within(syntax.JSONPointer), syntax.Err)
	}
	var semantic *jsonv2.SemanticError
	if errors.As(err, &semantic) {
		what := "has the wrong type"
		switch wanted := typeName(semantic.GoType); {
		case wanted == wholeNumber && semantic.JSONKind == '0':
			what = fmt.Sprintf("must be a whole number that fits into %d bits", semantic.GoType.Bits())
		case wanted != "" && semantic.JSONKind != 0:
			what = "must be " + wanted + ", not " + kindName(semantic.JSONKind)
		case wanted != "":
			what = "must be " + wanted
		case semantic.JSONKind != 0:
			what = "must not be " + kindName(semantic.JSONKind)
		}
		return problem.FieldError("gateway.JSON", field(semantic.JSONPointer), "%s", what)
	}
	return fault.Newf("gateway.JSON", fault.InvalidJSON, nil, "the body is not valid JSON")
}

func within(p jsontext.Pointer) string {
	if p == "" {
		return ""
	}
	return " in " + field(p)
}

// field writes a pointer as people do: /partitions/0/offset as partitions[0].offset.
func field(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch {
		case token != "" && strings.Trim(token, "0123456789") == "":
			b.WriteString("[" + token + "]")
		case b.Len() > 0:
			b.WriteString("." + token)
		default:
			b.WriteString(token)
		}
	}
	if b.Len() > 200 {
		return b.String()[:200]
	}
	return b.String()
}

const wholeNumber = "a whole number"

// typeName is what JSON has for a type; empty where that is not one thing.
func typeName(t reflect.Type) string {
	switch {
	case t == nil:
		return ""
	case t == reflect.TypeFor[api.SettingText]():
		return "a string, a number or a boolean"
	case t == reflect.TypeFor[[]string]():
		return "an array of strings"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return wholeNumber
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return ""
	}
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	default:
		return "a boolean"
	}
}

// answerJSON answers with v. Produce and read, where it counts, append their JSON by hand.
func answerJSON(c *fiber.Ctx, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fault.New("gateway.JSON", fault.Internal, nil, err)
	}
	resp := c.Response()
	resp.SetStatusCode(status)
	resp.Header.SetContentType(typeJSON)
	resp.SetBodyRaw(append(body, lineEnd))
	return nil
}

const typeJSON = "application/json"

// lineEnd stands behind every JSON document, so that a shell's prompt does not stick to it.
const lineEnd = '\n'
