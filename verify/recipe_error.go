package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// RecipeError says which field of a recipe is wrong, and how. Every error of
// [ParseRecipe] and [Recipe.Compile] is one.
type RecipeError struct {
	// Recipe is the recipe's name. It may be empty.
	Recipe string
	// Field is a path such as signature.encoding or require[0].header. Of a field
	// that is missing it says where it belongs; empty: the recipe as a whole.
	Field string
	// Err says what is wrong there.
	Err error
}

func (e *RecipeError) Error() string {
	text := "verify: recipe"
	if e.Recipe != "" {
		text += " " + e.Recipe
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Err.Error()
}

func (e *RecipeError) Unwrap() error { return e.Err }

// fieldError is an error about a field inside the one that is looked at.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// wrongf makes an error about an inner field.
func wrongf(field, format string, args ...any) error {
	return &fieldError{field, fmt.Errorf(format, args...)}
}

// in says which inner field an error is about.
func in(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field, err}
}

// recipeError joins the fields of err to one path.
func recipeError(name, field string, err error) *RecipeError {
	for {
		inner, ok := err.(*fieldError)
		if !ok {
			return &RecipeError{name, field, err}
		}
		field, err = joinField(field, inner.field), inner.err
	}
}

func joinField(field, inner string) string {
	switch {
	case field == "":
		return inner
	case strings.HasPrefix(inner, "["):
		return field + inner
	}
	return field + "." + inner
}

// wrongType says in the words of the recipe what encoding/json says in those of Go.
func wrongType(err error) *RecipeError {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return &RecipeError{Err: err}
	}
	field := strings.TrimPrefix(wrong.Field, "Recipe.")
	switch wrong.Type {
	case reflect.TypeFor[Seconds]():
		err = fmt.Errorf("%s is not a positive number of seconds, and not null", wrong.Value)
	case reflect.TypeFor[Sources]():
		err = errors.New("a place is a text or a list of texts")
	default:
		value, _, _ := strings.Cut(wrong.Value, " ") // a number has its digits behind it
		err = fmt.Errorf("%s where %s belongs", kindOfValue(value), kindOfType(wrong.Type))
	}
	return &RecipeError{Field: field, Err: err}
}

func kindOfValue(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "bool":
		return "true or false"
	case "string":
		return "a text"
	}
	return "a " + value
}

func kindOfType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "a mapping"
	}
	return "a whole number"
}
