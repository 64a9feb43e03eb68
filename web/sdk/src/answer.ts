// `@antiphon/client/answer`: an answer's markdown as elements, for pages that draw captions themselves.

export { type AnswerChild, type AnswerElement, answerOf } from './state/answer.js';
